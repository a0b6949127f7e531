"""The token file: who may call over TCP, and how much each may do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from lionstate.errors import InvalidInputError

from .files import read_private

__all__ = ["SCOPES", "Rights", "Token", "read_tokens"]

Rights: TypeAlias = Literal["read", "write", "admin"]
SCOPES: Final[tuple[Rights, ...]] = get_args(Rights)
"""Each may do what those before it may do."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class Token:
    """One line of the file.

    Attributes:
        caller: Whom its holder is taken for, in receipts and logs; two lines of one name are one caller.
        scope: What its holder may do.
        secret: The token itself.
    """

    caller: str
    scope: Rights
    secret: bytes = field(repr=False)


def read_tokens(path: str) -> tuple[Token, ...]:
    """The tokens of a file: lines `scope token` or `name scope token`; empty lines and those with `#` are left out.

    A file of one bare token makes its holder `admin`; one that holds none, such as the empty credential of the unit as
    it is shipped, lets nobody in, and a listener that asks for tokens is refused.

    Raises:
        InvalidInputError: As `read_private`, or a line is none of these; the message names its number and not its text.
    """
    try:
        text = read_private(path, "auth.token_file").decode("ascii")
    except UnicodeDecodeError as exc:
        raise InvalidInputError(f"auth.token_file must be ASCII: {path}") from exc
    lines = [(number, parts) for number, line in enumerate(text.splitlines(), 1) if (parts := _parts(line))]
    if len(lines) == 1 and len(lines[0][1]) == 1:
        return (Token("token", "admin", lines[0][1][0].encode()),)
    found = tuple(_token(parts, f"line {number} of auth.token_file {path}") for number, parts in lines)
    for token in found:
        if any(other.secret == token.secret and other != token for other in found):
            raise InvalidInputError(f"auth.token_file gives one token two meanings: {path}")
    return found


def _parts(line: str) -> list[str]:
    return [] if line.lstrip().startswith("#") else line.split()


def _token(parts: list[str], where: str) -> Token:
    if len(parts) not in (2, 3) or parts[-2] not in SCOPES:
        raise InvalidInputError(f"{where} is not `scope token` or `name scope token` with scope {', '.join(SCOPES)}")
    name = parts[0]
    if not _NAME.fullmatch(name):
        raise InvalidInputError(f"{where}: a name is 1 to 64 letters, digits, dots, dashes and underscores")
    if not parts[-1].isprintable():
        raise InvalidInputError(f"{where}: the token holds a control character")
    return Token(f"token:{name}", parts[-2], parts[-1].encode())

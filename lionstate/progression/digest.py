"""The ordered digest that compares the two representations of a progression (ADR-0117 D3).

Pure. It says nothing about ordinals or counts: those are compared beside it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from lionstate.errors import InvalidInputError

__all__ = ["SLICE_SIZE", "Digest", "digest_of", "slices"]

SLICE_SIZE = 10_000

_pack_length = struct.Struct(">Q").pack


def slices(ids: Iterable[str], size: int = SLICE_SIZE) -> Iterator[list[str]]:
    """Cut any iterable into lists of at most ``size`` elements, in order; nothing for an empty one."""
    iterator = iter(ids)
    while batch := list(islice(iterator, size)):
        yield batch


def _frames(batch: Sequence[str]) -> bytes:
    if "".join(batch).isascii() and len(set(map(len, batch))) == 1:
        # Ids of one length are the rule (32 hex characters): one join instead of two objects an id.
        header = _pack_length(len(batch[0])).decode("latin-1")
        return (header + header.join(batch)).encode("latin-1")
    encoded = [message_id.encode() for message_id in batch]
    return b"".join(chain.from_iterable(zip(map(_pack_length, map(len, encoded)), encoded, strict=True)))


class Digest:
    """SHA-256 over repeated ``uint64_be(byte_length) || utf8(message_id)`` frames, fed in pieces.

    Where the pieces are cut does not change the result. After an error the object is of no further use.

    Contract: ADR-0117 D3.
    """

    def __init__(self) -> None:
        """Start at the digest of the empty list."""
        self._hash = hashlib.sha256()
        self._count = 0

    def copy(self) -> Digest:
        """Give a digest that goes on from here by itself. Cost: constant."""
        twin = Digest()
        twin._hash, twin._count = self._hash.copy(), self._count
        return twin

    @property
    def count(self) -> int:
        """Ids taken so far."""
        return self._count

    def update(self, ids: Iterable[str]) -> None:
        """Take the next ids in order.

        Raises:
            InvalidInputError: An id is not text, or holds a lone surrogate and so has no UTF-8 form.

        Cost: linear, about 10 ms for 100,000 ids of one length and 20 ms for mixed ones; memory one slice.
        """
        if isinstance(ids, (str, bytes)):
            raise InvalidInputError("a digest is over a sequence of message ids, not over one text")
        for batch in slices(ids):
            try:
                self._hash.update(_frames(batch))
            except (TypeError, UnicodeEncodeError):
                # `from None`: the encoder's message quotes the id.
                last = self._count + len(batch) - 1
                raise InvalidInputError(
                    f"a message id among positions {self._count} to {last} has no UTF-8 form"
                ) from None
            self._count += len(batch)

    def hexdigest(self) -> str:
        """Give the digest of everything taken so far, 64 lower-case hex digits."""
        return self._hash.hexdigest()


def digest_of(ids: Iterable[str]) -> str:
    """Digest a whole list at once; cost, errors and contract as `Digest.update`."""
    digest = Digest()
    digest.update(ids)
    return digest.hexdigest()

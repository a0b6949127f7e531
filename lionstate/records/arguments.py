"""Declares what the arguments of a script must be; pure.

``takes`` checks them when the script is called and hands the same check to the operation, which runs it before the
call enters the queue: what is refused never costs a transaction. It hands over their schemas too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

from sqlalchemy import Connection, Table

from lionstate.errors import InvalidInputError
from lionstate.records.schemas import (
    ANY,
    FLAG,
    MAPPING,
    NUMBER,
    TEXT,
    Schema,
    choice,
    columns_schema,
    described,
    list_of,
    merged,
    nullable,
    row_schema,
    schema_of,
    schemas_of,
    whole_number,
)
from lionstate.records.values import (
    MAX_PAGE,
    CheckedRow,
    check_choice,
    check_page,
    check_text,
    checked_row,
    encoded_json,
    finite_number,
)
from lionstate.schema.types import RawJson

__all__ = [
    "Check",
    "Rule",
    "above",
    "changes_of",
    "flag",
    "json_value",
    "mapping",
    "optional",
    "page_limit",
    "page_offset",
    "row_of",
    "saying",
    "takes",
    "texts",
    "whole",
    "words",
]

Check: TypeAlias = Callable[[str, Any], Any]
Rule: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
F = TypeVar("F", bound=Callable[..., Any])


def saying(schemas: Mapping[str, Schema]) -> Callable[[F], F]:
    """Say what a rule asks of the arguments that it looks at, by name."""

    def decorate(rule: F) -> F:
        vars(rule)["schemas"] = schemas
        return rule

    return decorate


def takes(*rules: Rule, **checks: Check) -> Callable[[F], F]:
    """Check the named arguments of a script that are given, then apply the rules to all of them.

    Every check must accept what it returned: it runs a second time inside the transaction.
    """

    def check(params: Mapping[str, Any]) -> dict[str, Any]:
        checked = dict(params)
        for name, one in checks.items():
            if name in checked:
                checked[name] = one(name, checked[name])
        for rule in rules:
            checked = rule(checked)
        return checked

    said = {name: schema for name, one in checks.items() if (schema := schema_of(one)) is not None}
    schemas = merged(said, *map(schemas_of, rules))

    def decorate(script: F) -> F:
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD,)
        names = [found.name for found in inspect.signature(script).parameters.values() if found.kind in kinds]

        @functools.wraps(script)
        def run(conn: Connection, /, *args: Any, **kwargs: Any) -> Any:
            return script(conn, **check(dict(zip(names, args, strict=False)) | kwargs))

        vars(run)["check"] = check
        vars(run)["schemas"] = schemas
        return cast(F, run)

    return decorate


def optional(check: Check) -> Check:
    """None passes, anything else must pass ``check``."""
    inner = schema_of(check)

    def checked(name: str, value: Any) -> Any:
        return None if value is None else check(name, value)

    return checked if inner is None else described(nullable(inner))(checked)


def words(choices: Collection[str]) -> Check:
    """One word of a closed vocabulary."""

    @described(choice(choices))
    def check(name: str, value: Any) -> Any:
        check_choice(name, value, choices, optional=False)
        return value

    return check


@described(FLAG)
def flag(name: str, value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name} must be true or false, not {type(value).__name__}")
    return value


def whole(least: int = 0, most: int = 2**31 - 1) -> Check:
    """A whole number between two bounds, both included."""

    @described(whole_number(least, most))
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InvalidInputError(f"{name} must be a whole number from {least} to {most}")
        return value

    return check


def above(least: float) -> Check:
    """A finite number greater than ``least``."""

    @described({**NUMBER, "exclusiveMinimum": least})
    def check(name: str, value: Any) -> float:
        number = finite_number(name, value)
        if number <= least:
            raise InvalidInputError(f"{name} must be more than {least:g}")
        return number

    return check


@described(whole_number(1, MAX_PAGE))
def page_limit(_name: str, value: Any) -> int:
    """Rows of a page, 1 to 1,000."""
    check_page(value)
    return cast(int, value)


@described(whole_number(0, 2**63 - 1))
def page_offset(_name: str, value: Any) -> int:
    """Rows before a page, 0 or more."""
    check_page(1, value)
    return cast(int, value)


@described(ANY)
def json_value(name: str, value: Any) -> RawJson:
    """Anything that JSON has a form for."""
    return encoded_json(name, value)


@described(MAPPING)
def mapping(name: str, value: Any) -> RawJson:
    """A JSON object."""
    if not isinstance(value, (Mapping, RawJson)):
        raise InvalidInputError(f"{name} must be a mapping, not {type(value).__name__}")
    return encoded_json(name, value)


@described(list_of(TEXT, MAX_PAGE))
def texts(name: str, value: Any) -> list[str]:
    """At most 1,000 texts; their order is kept, repeats too."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InvalidInputError(f"{name} must be a list of texts, not {type(value).__name__}")
    found = [check_text(name, one) for one in value]
    if len(found) > MAX_PAGE:
        raise InvalidInputError(f"{name} holds more than {MAX_PAGE} texts")
    return found


def row_of(table: Table, columns: Collection[str], required: Collection[str]) -> Check:
    """A mapping that becomes a row of a table.

    Keys that are no column of ``columns`` are left alone, as a mapping is read by key; None in a column that cannot
    hold it means the column's default.
    """

    @described(row_schema(table, columns, required))
    def check(name: str, value: Any) -> CheckedRow:
        if isinstance(value, CheckedRow):
            return value
        row = checked_row(name, table, columns, value, required=required)
        absent = [key for key in row if value[key] is None and not table.c[key].nullable]
        for key in absent:
            del row[key]
        return row

    return check


def changes_of(table: Table, writable: Collection[str], fixed: Collection[str]) -> Rule:
    """Every argument but the ``fixed`` ones is a new value of a ``writable`` column."""

    def rule(params: dict[str, Any]) -> dict[str, Any]:
        names = [name for name in params if name not in fixed]
        unknown = [name for name in names if name not in writable]
        if unknown:
            raise InvalidInputError(f"these columns cannot be written: {', '.join(sorted(unknown))}")
        for name in names:
            if params[name] is None and not table.c[name].nullable:
                raise InvalidInputError(f"{name} must not be None")
        return {**params, **checked_row("changes", table, names, params)}

    return saying(columns_schema(table, writable))(rule)

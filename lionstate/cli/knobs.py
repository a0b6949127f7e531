"""``lionstate progression-migrate knobs get|set``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lionstate.cli import tables
from lionstate.cli.options import Daemon, Json, Reason, Token, Until, Url, moment, run_on_migration
from lionstate.errors import InvalidInputError

if TYPE_CHECKING:
    from lionstate.migration.knobs import KnobSetting

__all__ = ["app"]

app = typer.Typer(help="Limits, targets and budgets that migration obeys.", no_args_is_help=True)

_DEFAULT = "default"


@app.command("get")
def get_knobs(
    name: Annotated[str | None, typer.Argument(help="One knob; all without it.")] = None,
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Show the knobs: value, default, bounds, and who set them, why and until when."""
    found: tuple[KnobSetting, ...] = run_on_migration((url, daemon, token), lambda service: service.knobs(), reads=True)
    if name is not None:
        named = tuple(one for one in found if one.name == name)
        if not named:
            raise InvalidInputError(f"there is no such knob; there are {', '.join(one.name for one in found)}")
        found = named
    if as_json:
        tables.print_json({"knobs": found})
        return
    from lionstate.migration.knobs import spelled

    rows = [
        [
            one.name,
            spelled(one.value),
            spelled(one.default),
            f"{spelled(one.low)} to {spelled(one.high)}",
            _origin(one),
            one.what,
        ]
        for one in found
    ]
    tables.print_rows(rows, ("knob", "value", "default", "bounds", "set by", "what"))


def _origin(one: KnobSetting) -> str:
    if one.actor is None:
        return "-"
    until = "" if one.expires_at is None else f", until {tables.cell('expires_at', one.expires_at)}"
    return f"{one.actor}: {one.reason or 'no reason given'}{until}"


@app.command("set", context_settings={"ignore_unknown_options": True})
def set_knob(
    name: Annotated[str, typer.Argument(help="The knob.")],
    value: Annotated[str, typer.Argument(help="A number within its bounds, or `default`.")],
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    reason: Reason = None,
    until: Until = None,
    as_json: Json = False,
) -> None:
    """Set one knob from the next step on; kept in the store, over restarts."""
    number: float | None = None
    if value != _DEFAULT:
        try:
            number = float(value)
        except ValueError:
            raise InvalidInputError("the value must be a number, or `default`") from None
    expires_at = moment(until)
    one: KnobSetting = run_on_migration(
        (url, daemon, token),
        lambda service: service.set_knob(name, number, reason=reason, expires_at=expires_at),
    )
    from lionstate.migration.knobs import spelled

    tables.done(f"{one.name} is {spelled(one.value)}", facts={"knob": one}, as_json=as_json)

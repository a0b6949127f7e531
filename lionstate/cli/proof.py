"""``verify``, ``scrub`` and ``codes`` of ``lionstate progression-migrate``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lionstate.cli import render, tables
from lionstate.cli.options import Daemon, Json, Token, Url, run_on_migration
from lionstate.cli.reasons import so_far, why_not_scrubbed
from lionstate.errors import InvalidInputError

if TYPE_CHECKING:
    from lionstate.migration import ScrubSlice, VerificationResult

__all__ = ["mount"]

_BUSY, _MISMATCH, _NOT_APPLICABLE = 5, 6, 7


def mount(app: typer.Typer) -> None:
    """Put the verbs on the command of migration."""
    for verb in (verify, scrub, codes):
        app.command()(verb)


def verify(
    progression_id: Annotated[str, typer.Argument(help="The progression to compare.")],
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    after: Annotated[
        str | None, typer.Option(help="Go on where a verification was cut short: the token that it printed.")
    ] = None,
    token_every: Annotated[float, typer.Option(help="Seconds between two tokens, after the cutover.")] = 5.0,
    as_json: Json = False,
) -> None:
    """Compare the two representations of a progression; changes nothing in any phase.

    Exits with 6 when they differ and with 7 when there is only one. A long one prints on stderr, every few seconds, the
    token by which another run goes on if this one is cut short.
    """
    from lionstate.migration import VerificationOutcome

    async def work(service: Any) -> VerificationResult:
        found: VerificationResult = await service.verify(progression_id, after=after, max_seconds=token_every)
        while found.token is not None:
            sys.stderr.write(f"{so_far(found)}; to go on from here: --after {found.token}\n")
            found = await service.verify(progression_id, after=found.token, max_seconds=token_every)
        return found

    found = run_on_migration((url, daemon, token), work, reads=True)
    render.verification(found, as_json=as_json)
    codes = {VerificationOutcome.MISMATCH: _MISMATCH, VerificationOutcome.NOT_APPLICABLE: _NOT_APPLICABLE}
    raise typer.Exit(codes.get(found.outcome, 0))


def scrub(
    progression_id: Annotated[str | None, typer.Argument(help="This one only; without it the whole store.")] = None,
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin a new pass, whatever a pass under way has done already.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare again everything that was cut over, and block what is wrong with the representation that is right.

    Goes on with the pass under way, of the daemon or of a command that was cut short. Exits with 6 when something was
    found, with 5 while migration is paused, and with 7 when the named progression has nothing to compare.
    """
    if progression_id is not None and restart:
        raise InvalidInputError("--restart begins a pass over the whole store: say it without a progression")

    async def work(service: Any) -> tuple[list[ScrubSlice], str | None]:
        if progression_id is not None:
            one = await service.scrub(progression_id=progression_id)
            if one.checked or one.is_paused:
                return [one], None
            return [one], why_not_scrubbed(await service.explain(progression_id))
        slices: list[ScrubSlice] = []
        with render.counter("rows compared", show=not as_json) as advance:
            while not slices or not (slices[-1].pass_ended or slices[-1].is_paused):
                slices.append(await service.scrub(restart=restart and not slices))
                advance(sum(sum(one.items.values()) for one in slices))
        return slices, None

    slices, why = run_on_migration((url, daemon, token), work)
    last = slices[-1]
    findings: dict[str, int] = {}
    for one in slices:
        for code, count in one.findings.items():
            findings[code] = findings.get(code, 0) + count
    facts = {
        "checked": sum(one.checked for one in slices),
        "items": sum(sum(one.items.values()) for one in slices),
        "findings": findings,
        "pass_findings": last.pass_findings,
        "not_blocked": sum(one.not_blocked for one in slices),
        "is_paused": last.is_paused,
        "seconds": sum(one.seconds for one in slices),
        **({} if why is None else {"why": why}),
    }
    if as_json:
        tables.print_json(facts)
    elif last.is_paused:
        tables.note("migration is paused: nothing was compared")
    else:
        tables.print_facts({**facts, "findings": ", ".join(f"{code} {n}" for code, n in findings.items()) or "none"})
    if last.is_paused:
        raise typer.Exit(_BUSY)
    if findings or last.pass_findings or facts["not_blocked"]:
        raise typer.Exit(_MISMATCH)
    raise typer.Exit(0 if why is None else _NOT_APPLICABLE)


def codes(as_json: Json = False) -> None:
    """What every code of a blocked or held progression means, how it is found, and what to do."""
    from lionstate.migration import CODES

    if as_json:
        tables.print_json({"codes": CODES})
        return
    rows = [[entry.code.value, entry.means, entry.found_by.replace("`", ""), entry.action] for entry in CODES]
    tables.print_rows(rows, ("code", "means", "found by", "do"))

"""``preflight``, ``explain``, ``blocked`` and ``rollback`` of ``lionstate progression-migrate``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from lionstate.cli import tables
from lionstate.cli.options import Daemon, Json, Reason, Token, Url, run_on_migration
from lionstate.cli.plan import plan
from lionstate.cli.reasons import foreign_lines
from lionstate.cli.rehearse import rehearse
from lionstate.errors import BlockedCode, InvalidInputError

if TYPE_CHECKING:
    from lionstate.migration import AuditEvent, BlockedProgression, Explanation, Preflight

__all__ = ["mount"]

R = TypeVar("R")

Progression = Annotated[str, typer.Argument(help="The progression.")]

blocked = typer.Typer(help="Progressions that could not be migrated, and the ways out.", no_args_is_help=True)


def mount(app: typer.Typer) -> None:
    """Put the verbs on the command of migration."""
    for verb in (preflight, plan, rehearse, explain, audit, rollback):
        app.command()(verb)
    app.add_typer(blocked, name="blocked")


def preflight(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    limit: Annotated[int, typer.Option(help="Progressions to name for each code.")] = 20,
    as_json: Json = False,
) -> None:
    """Read every JSON value once and say what migration will meet; changes nothing.

    Exits with 8 when some could not be migrated as they are.
    """
    found: Preflight = run_on_migration(
        (url, daemon, token), lambda service: service.preflight(limit=limit), reads=True
    )
    if as_json:
        tables.print_json(found)
    else:
        _print_preflight(found)
    raise typer.Exit(8 if found.not_migratable else 0)


def _print_preflight(found: Preflight) -> None:
    from lionstate.migration import MIGRATABLE, RUNBOOK

    rows = [
        [code, f"{count:,}"] for code, count in sorted(found.verdicts.items(), key=lambda one: one[0] != MIGRATABLE)
    ]
    rows += [[f"already {phase}", f"{count:,}"] for phase, count in sorted(found.left_out.items())]
    tables.print_rows(rows, ("verdict", "progressions"))
    tables.note(
        f"{found.items:,} elements to copy, the longest progression has {found.largest_items:,};"
        f" {tables.size(found.size_bytes)} of JSON, the largest value {tables.size(found.largest_bytes)}"
    )
    for code, ids in found.named.items():
        tables.note(f"{code}: {', '.join(ids)}")
        tables.note(f"  {RUNBOOK[BlockedCode(code)]}")
    for line in foreign_lines(found.foreign):
        tables.note(line)
    tables.note(
        "the fence is there: programs that know only the JSON column are refused once a progression is in items"
        if found.has_fence
        else "after the first cutover programs that know only the JSON column are refused: switch them off, and"
        " foreign pruning too, or bridge them"
    )


def explain(
    progression_id: Progression, url: Url = None, daemon: Daemon = None, token: Token = None, as_json: Json = False
) -> None:
    """Tell why one progression is where it is and what would move it."""
    found: Explanation = run_on_migration(
        (url, daemon, token), lambda service: service.explain(progression_id), reads=True
    )
    if as_json:
        tables.print_json(found)
        return
    facts = {
        name: value for name, value in asdict(found).items() if value is not None and name not in ("waits", "orders")
    }
    if found.size_bytes is not None:
        facts["size_bytes"] = tables.size(found.size_bytes)
    tables.print_facts(facts)
    for one in found.orders:
        if one.kind == "prioritize":
            who = f"{one.actor}{tables.since(one.since)}{tables.until(one.expires_at)}"
            tables.note(f"prioritized by {who}: {one.reason or 'no reason given'}")
    for line in found.waits or ("it waits for nothing",):
        tables.note(line)


def audit(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    progression: Annotated[str | None, typer.Option(help="Of this progression only, also when it was deleted.")] = None,
    limit: Annotated[int, typer.Option(help="Events, 1 to 10,000.")] = 100,
    as_json: Json = False,
) -> None:
    """Show who did what to the migration, when and why, newest first."""
    found: tuple[AuditEvent, ...] = run_on_migration(
        (url, daemon, token), lambda service: service.audit(progression_id=progression, limit=limit), reads=True
    )
    if as_json:
        tables.print_json({"events": found})
        return
    columns = ("at", "action", "actor", "reason", "progression_id", "details")
    rows = [[tables.cell(f"event_{name}", getattr(one, name) or None) for name in columns] for one in found]
    tables.print_rows(rows, ("when", "action", "actor", "reason", "progression", "details"))


@blocked.command("list")
def list_blocked(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    limit: Annotated[int, typer.Option(help="Rows, 1 to 10,000.")] = 100,
    as_json: Json = False,
) -> None:
    """List blocked progressions, those blocked longest first."""
    found: tuple[BlockedProgression, ...] = run_on_migration(
        (url, daemon, token), lambda service: service.blocked(limit=limit), reads=True
    )
    if as_json:
        tables.print_json({"blocked": found})
        return
    rows = [[one.progression_id, one.code, one.authority, tables.ago(one.updated_at)] for one in found]
    tables.print_rows(rows, ("progression", "code", "authority", "since"))


@blocked.command("show")
def show_blocked(
    progression_id: Progression, url: Url = None, daemon: Daemon = None, token: Token = None, as_json: Json = False
) -> None:
    """Show one progression and what to do about its code."""
    explain(progression_id, url, daemon, token, as_json)


@blocked.command("retry")
def retry_blocked(
    progression_id: Progression,
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Admit a blocked progression anew, from scratch; only while its JSON is the authority (else exits with 8)."""
    run_on_migration((url, daemon, token), lambda service: service.retry(progression_id, reason=reason))
    tables.done("it is back in json; the next steps admit it anew", facts={"phase": "json"}, as_json=as_json)


@blocked.command("unblock")
def unblock_blocked(
    progression_id: Progression,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")],
    use: Annotated[
        str | None, typer.Option(help="Which counts from now on, where neither is trusted: json or items.")
    ] = None,
    adopt: Annotated[bool, typer.Option("--adopt", help="Append the ids that only the JSON has.")] = False,
    discard: Annotated[bool, typer.Option("--discard", help="Leave out the ids that only the JSON has.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First write the rows of the frozen prefix anew from a good JSON.")
    ] = False,
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Let a blocked progression out with the representation that is trusted, or that you say is."""
    if adopt and discard:
        raise InvalidInputError("say --adopt or --discard, not both")
    if use not in (None, "json", "items"):
        raise InvalidInputError("--use is json or items")
    foreign = "adopt" if adopt else "discard" if discard else None
    phase: str = run_on_migration(
        (url, daemon, token),
        lambda service: service.unblock(progression_id, use=use, foreign=foreign, rebuild=rebuild, reason=reason),
    )
    tables.done(f"it is in {phase}", facts={"phase": phase}, as_json=as_json)


def rollback(
    progression_id: Progression,
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Return a dual progression to its JSON and hold it until `release`; exits with 7 in any other phase."""
    run_on_migration((url, daemon, token), lambda service: service.rollback(progression_id, reason=reason))
    tables.done("it is back in json, and held until it is released", facts={"phase": "json"}, as_json=as_json)

"""The verbs of the knobs: ``knobs get`` and ``knobs set`` (design decision 26)."""

from __future__ import annotations

import time

from sqlalchemy import Connection

from lionstate.errors import InvalidInputError
from lionstate.migration import control
from lionstate.migration.acting import Acting
from lionstate.migration.knob_values import key_of, read_knobs, settings_of
from lionstate.migration.knobs import Knobs, KnobSetting, checked_knob
from lionstate.migration.port import MigrationStore, bound

__all__ = ["KnobVerbs"]


class KnobVerbs(Acting):
    """What an operator turns while migration runs; persisted, so that it outlives every process.

    Attributes:
        defaults: Of the knobs that nobody has set in the store.
    """

    _store: MigrationStore
    defaults: Knobs

    async def knobs(self) -> tuple[KnobSetting, ...]:
        """Every knob: its value, its default, its bounds, and who set it, why and until when."""
        return settings_of(await self._store.read(bound(read_knobs, time.time())), self.defaults)

    async def set_knob(
        self, name: str, value: float | None = None, *, reason: str | None = None, expires_at: float | None = None
    ) -> KnobSetting:
        """Set one knob from the next step on; persisted and audited.

        Args:
            name: One of those that `knobs` names.
            value: Within its bounds; None takes the default again.
            reason: Why; kept with the value and in the audit trail.
            expires_at: When the default comes back, epoch seconds; None is never.
        Returns:
            The knob as it is then.
        Raises:
            InvalidInputError: There is no such knob (the message names those that there are), the value is out of
                bounds, or the expiry has passed.

        Contract: design decision 26.
        """
        now = time.time()
        checked = checked_knob(name, getattr(self.defaults, name, None) if value is None else value)
        if expires_at is not None and (value is None or not expires_at > now):
            raise InvalidInputError("a knob's expiry lies in the future, and the default has none")
        # Here and not in the script, which runs where nobody acts for anybody.
        key, actor = key_of(name), self._actor

        def script(conn: Connection) -> None:
            if value is None:
                control.clear_value(conn, key, action=key, actor=actor, reason=reason, now=now)
            else:
                control.set_value(conn, key, checked, actor=actor, reason=reason, now=now, expires_at=expires_at)

        await self._store.maintain("progression_migrate.knob", script)
        return next(one for one in await self.knobs() if one.name == name)

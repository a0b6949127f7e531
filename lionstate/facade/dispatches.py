"""The outbox: what is to be delivered, and the attempts at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lionstate.facade.runner import Runner
from lionstate.records import dispatch_attempts, dispatches

__all__ = ["DispatchFacade"]


class DispatchFacade(Runner):
    """Methods on dispatches.

    Delivery is at least once: an attempt whose process dies is made again when its lease is over, so a consumer
    recognizes a repeat by ``dispatch_id`` of the payload.
    """

    async def enqueue_dispatch(
        self,
        *,
        kind: str,
        deliver_to: str,
        body: Mapping[str, Any] | None = None,
        dedup_key: str | None = None,
        ack_required: bool = False,
        max_attempts: int = 8,
        expires_at: float | None = None,
        session_id: str | None = None,
        schedule_run_id: str | None = None,
    ) -> str:
        """Enter a dispatch into the outbox, due at once.

        Args:
            kind: What it is, for the consumer.
            deliver_to: Where to; not blank, no NUL.
            body: A JSON object; None is {}.
            dedup_key: A second call with the same key returns the first one's id and changes nothing, whatever
                became of the first.
            ack_required: It is sent again until ``ack_dispatch`` presents its ``ack_token``.
            max_attempts: Attempts before it is a dead letter, from 1.
            expires_at: Epoch seconds after which no attempt is made; None is never.
            session_id: A session it belongs to.
            schedule_run_id: A schedule run it belongs to.
        Returns:
            The id. The payload holds it as ``dispatch_id``, with ``kind``, ``deliver_to``, ``attempt`` (0),
            ``ack_token`` and ``body``.
        Raises:
            InvalidInputError: An argument; nothing was written.
            ForeignKeyError: The session or the schedule run is missing.

        Cost: two statements. Contract: ADR-0055 D1; reference §2.7.
        """
        return await self._run(
            dispatches.enqueue_dispatch,
            kind=kind,
            deliver_to=deliver_to,
            body=body,
            dedup_key=dedup_key,
            ack_required=ack_required,
            max_attempts=max_attempts,
            expires_at=expires_at,
            session_id=session_id,
            schedule_run_id=schedule_run_id,
        )

    async def enqueue_revival_heartbeat(
        self, seats: Sequence[str], *, reset_epoch: float, ttl_seconds: float = 3600.0, max_attempts: int = 8
    ) -> list[str]:
        """Enter one ``revival_ping`` to each seat, once for each epoch.

        Args:
            seats: Destinations, at most 1,000.
            reset_epoch: Epoch seconds; with the seat it is the ``dedup_key``. 0 never expires.
            ttl_seconds: Seconds after ``reset_epoch`` at which they expire.
            max_attempts: As ``enqueue_dispatch`` takes it.
        Returns:
            The ids in the order of the seats.

        Cost: two statements for each seat. Contract: ADR-0055 D1; reference §2.7.
        """
        return await self._run(
            dispatches.enqueue_revival_heartbeat,
            seats,
            reset_epoch=reset_epoch,
            ttl_seconds=ttl_seconds,
            max_attempts=max_attempts,
        )

    async def get_dispatch(self, dispatch_id: str) -> dict[str, Any] | None:
        """Read one dispatch with its payload decoded; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(dispatches.get_dispatch, dispatch_id)

    async def list_dispatches(
        self, *, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Read a page of dispatches, newest first.

        Args:
            status: ``pending``, ``delivering``, ``delivered``, ``acked``, ``dead_letter`` or ``expired``; None is any.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.

        Cost: reads and sorts the dispatches that match. Contract: ADR-0055 D1; reference §2.7.
        """
        return await self._run(dispatches.list_dispatches, status=status, limit=limit, offset=offset)

    async def count_dispatches(self, *, status: str | None = None) -> int:
        """Count the dispatches that ``list_dispatches`` would page through.

        Contract: ADR-0055 D1.
        """
        return await self._run(dispatches.count_dispatches, status=status)

    async def next_dispatch_at(self) -> float | None:
        """Read when the next attempt is due.

        Returns:
            Epoch seconds, in the past when one is due already; the end of a lease counts. None when no dispatch is
            pending or under way.

        Cost: two index seeks. Contract: ADR-0055 D1.
        """
        return await self._run(dispatch_attempts.next_dispatch_at)

    async def claim_due_dispatches(
        self,
        *,
        now: float | None = None,
        limit: int = 32,
        lease_seconds: float = 15.0,
        actor: str = "dispatch_delivery_loop",
    ) -> list[dict[str, Any]]:
        """Claim due dispatches, each for one attempt.

        Args:
            now: Epoch seconds; None is the current time.
            limit: Due rows to look at, 1 to 1,000.
            lease_seconds: How long the attempt may take. Not settled by then, the dispatch is due again.
            actor: Who claims, for the history.
        Returns:
            The claimed rows as they are now: ``delivering``, ``attempt`` counted. Due ones that have expired, or
            whose last attempt was never settled (``dead_letter``), are moved there and left out. Two callers at the
            same time never get the same attempt.

        Cost: one index range of ``limit`` rows, two statements for each status that is written.
        Contract: ADR-0055 D1; reference §2.7.
        """
        return await self._run(
            dispatch_attempts.claim_due_dispatches, now=now, limit=limit, lease_seconds=lease_seconds, actor=actor
        )

    async def finish_dispatch_attempt(
        self,
        dispatch_id: str,
        *,
        attempt: int,
        error: str | None = None,
        permanent: bool = False,
        now: float | None = None,
        actor: str = "dispatch_delivery_loop",
    ) -> str | None:
        """Settle an attempt that ``claim_due_dispatches`` gave out.

        Args:
            dispatch_id: The dispatch.
            attempt: Its number as claimed; another one, or a dispatch that has moved on, is left alone.
            error: Why it failed, kept in ``last_error`` up to 2,000 characters; None is success.
            permanent: A failure that another attempt would not mend.
            now: Epoch seconds; None is the current time.
            actor: Who settles, for the history.
        Returns:
            The new status. Success: ``delivered``, or ``pending`` when an acknowledgement is awaited. Failure:
            ``pending``, the next attempt min(30 · 2^attempt, 1,800) s away. ``dead_letter`` after the last attempt
            and after a permanent failure. None, and nothing written, if the dispatch is missing, acknowledged,
            settled, or claimed again.

        Cost: three statements. Contract: ADR-0055 D1; reference §2.7.
        """
        return await self._run(
            dispatch_attempts.finish_dispatch_attempt,
            dispatch_id,
            attempt=attempt,
            error=error,
            permanent=permanent,
            now=now,
            actor=actor,
        )

    async def ack_dispatch(self, dispatch_id: str, ack_token: str) -> bool:
        """Acknowledge a dispatch as its consumer, before, between or during attempts.

        Returns:
            True; a second acknowledgement changes nothing.
        Raises:
            NotFoundError: The dispatch is missing.
            InvalidInputError: It asks for none, the token is another, or it is dead or expired; nothing was written.

        Contract: ADR-0055 D1; reference §2.7.
        """
        return await self._run(dispatches.ack_dispatch, dispatch_id, ack_token)

    async def retry_dispatch(self, dispatch_id: str) -> bool:
        """Make a ``dead_letter`` or ``expired`` dispatch pending and due, its attempts counted anew.

        Returns:
            True.
        Raises:
            NotFoundError: The dispatch is missing.
            InvalidInputError: It has another status; nothing was written.

        An ``expires_at`` that has passed expires it again at the next claim.
        Contract: ADR-0055 D1; reference §2.7.
        """
        return await self._run(dispatches.retry_dispatch, dispatch_id)

    async def purge_dispatch(self, dispatch_id: str, *, actor: str = "li_dispatch_purge") -> bool:
        """Delete one dispatch, whatever its status, and note an admin event ``dispatch_purge``.

        Returns:
            False, and no event, if it is missing.

        Contract: ADR-0055 D1; reference §2.7.
        """
        return await self._run(dispatches.purge_dispatch, dispatch_id, actor=actor)

    async def purge_dispatches(
        self,
        *,
        status: str | None = None,
        before: float | None = None,
        dry_run: bool = False,
        limit: int = 10_000,
        actor: str = "li_dispatch_purge",
    ) -> dict[str, Any]:
        """Delete the dispatches that match and note one admin event ``dispatch_purge``.

        Args:
            status: Only these, those under way too when named; None is any terminal status.
            before: Only those last changed then or earlier, epoch seconds.
            dry_run: Count, delete nothing; the event is noted all the same.
            limit: Deleted by one call, 1 to 10,000; a dry run counts all.
            actor: For the event.
        Returns:
            ``total``, ``dry_run``, and how many of each status. ``total`` equal to ``limit``: call again.
        Raises:
            InvalidInputError: Neither ``status`` nor ``before``; nothing was deleted.

        Cost: one scan of the outbox, one statement for every 500 rows. Contract: ADR-0055 D1; reference §2.7.
        """
        return await self._run(
            dispatches.purge_dispatches, status=status, before=before, dry_run=dry_run, limit=limit, actor=actor
        )

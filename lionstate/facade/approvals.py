"""Approvals of proposed actions and the chain of their evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lionstate.facade.runner import Runner
from lionstate.records import approvals

__all__ = ["ApprovalFacade"]


class ApprovalFacade(Runner):
    """Methods on approvals.

    ``hmac_key`` signs the evidence of a change; a chain that is verified with a key must be signed throughout.
    """

    async def create_approval(
        self,
        *,
        action_kind: str,
        params: Mapping[str, Any],
        session_id: str | None = None,
        ttl_seconds: float = approvals.TTL_SECONDS,
        hmac_key: str | None = None,
    ) -> dict[str, Any]:
        """Propose an action; what is stored of its parameters is their hash.

        Args:
            action_kind: What is to be done.
            params: With what: anything that JSON has a form for.
            session_id: Who proposes it.
            ttl_seconds: After this time an approval that is not used is expired; more than 0.
            hmac_key: See the class.
        Returns:
            The pending approval.
        Raises:
            ForeignKeyError: The session is missing.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(
            approvals.create_approval,
            action_kind=action_kind,
            params=params,
            session_id=session_id,
            ttl_seconds=ttl_seconds,
            hmac_key=hmac_key,
        )

    async def get_approval(self, approval_id: str, *, hmac_key: str | None = None) -> dict[str, Any] | None:
        """Read one approval; None if it is missing. One whose time is over becomes ``expired``, with its evidence.

        A write, therefore: refused on a store that is open read-only.
        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(approvals.get_approval, approval_id, hmac_key=hmac_key)

    async def list_approvals(
        self,
        *,
        status: str | None = None,
        action_kind: str | None = None,
        session_id: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Read a page of approvals, last proposed first; changes nothing.

        Args:
            status: ``pending``, ``granted``, ``consumed``, ``expired`` or ``denied``. An open one whose time is over
                counts and reads as expired.
            action_kind: Only of this kind.
            session_id: Only of this session.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.

        Contract: ADR-0055 D1.
        """
        return await self._run(
            approvals.list_approvals,
            status=status,
            action_kind=action_kind,
            session_id=session_id,
            limit=limit,
            offset=offset,
        )

    async def grant_approval(self, approval_id: str, *, hmac_key: str | None = None) -> dict[str, Any]:
        """Grant a pending approval and return it.

        Raises:
            NotFoundError: It is missing.
            ConflictError: It is not pending; an expiry that was found is stored.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(approvals.grant_approval, approval_id, hmac_key=hmac_key)

    async def deny_approval(
        self,
        approval_id: str,
        *,
        justification_class: str | None = None,
        justification_reason: str | None = None,
        hmac_key: str | None = None,
    ) -> dict[str, Any]:
        """Deny a pending approval, with the reason in its evidence, and return it; errors as ``grant_approval``.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(
            approvals.deny_approval,
            approval_id,
            justification_class=justification_class,
            justification_reason=justification_reason,
            hmac_key=hmac_key,
        )

    async def consume_approval(
        self, approval_id: str, *, action_kind: str, params: Mapping[str, Any], hmac_key: str | None = None
    ) -> dict[str, Any]:
        """Use a granted approval once and return it.

        Args:
            approval_id: The approval.
            action_kind: Must be that of the proposal.
            params: Must be those of the proposal.
            hmac_key: See the class.
        Raises:
            NotFoundError: It is missing.
            ConflictError: Another action or other parameters, or it is not granted; an expiry that was found is
                stored.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(
            approvals.consume_approval, approval_id, action_kind=action_kind, params=params, hmac_key=hmac_key
        )

    async def list_approval_evidence(
        self, *, approval_id: str | None = None, after_sequence: int = 0, limit: int = 100
    ) -> list[dict[str, Any]]:
        """Read a page of evidence, ascending by ``sequence``, 1 to 1,000 rows after one.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(
            approvals.list_approval_evidence, approval_id=approval_id, after_sequence=after_sequence, limit=limit
        )

    async def verify_approval_chain(
        self, *, hmac_key: str | None = None, after_sequence: int = 0, limit: int | None = None
    ) -> dict[str, Any]:
        """Follow the chain of evidence from its first row, whole or in parts.

        Args:
            hmac_key: Demand a signature of this key on every row.
            after_sequence: The number of the last row of a part that was found valid; 0 starts at the first row.
            limit: Rows of this part, 1 to 50,000; None follows the chain to its end. The chain ends with a part that
                has less, and the next part is after ``after_sequence`` plus ``total_entries``.
        Returns:
            ``valid``, ``total_entries`` (rows of this part), and ``broken``: None, or ``sequence``, ``id``,
            ``approval_id`` and ``problem`` of the first link that is broken. Entries cut off at the end cannot be seen.
        Raises:
            InvalidInputError: Without a limit there are more than 50,000 rows; or no row is ``after_sequence``.

        Cost: one read of these rows.
        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._read(
            approvals.verify_approval_chain, hmac_key=hmac_key, after_sequence=after_sequence, limit=limit
        )

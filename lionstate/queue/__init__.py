"""The write queue: bounded tickets, folding group commit, three outcomes; in process and in the daemon alike."""

from __future__ import annotations

from lionstate.queue.ticket import QueueLimits, Ticket, TicketClass
from lionstate.queue.write_queue import WriteQueue

__all__ = ["QueueLimits", "Ticket", "TicketClass", "WriteQueue"]

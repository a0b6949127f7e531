"""The write queue: bounded tickets, folding group commit, three outcomes; in process and in the daemon alike."""

from __future__ import annotations

from lionstate.queue.news import CommitNews
from lionstate.queue.probe import probe_reads, probe_writes
from lionstate.queue.receipts import ReceiptLimits, RequestKey
from lionstate.queue.ticket import QueueLimits, Ticket, TicketClass
from lionstate.queue.write_queue import WriteQueue

__all__ = [
    "CommitNews",
    "QueueLimits",
    "ReceiptLimits",
    "RequestKey",
    "Ticket",
    "TicketClass",
    "WriteQueue",
    "probe_reads",
    "probe_writes",
]

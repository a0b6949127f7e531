"""The HTTP API: one generic handler over the operations table, and answers from memory for monitoring."""

from .access import Bearers, peer_policy
from .app import Door, Health, operations_app, service_app
from .contracts import NewsLike, OperationLike, StoreLike, Verb
from .listeners import Listener, Listeners, check_listeners
from .server import ApiServer

__all__ = [
    "ApiServer",
    "Bearers",
    "Door",
    "Health",
    "Listener",
    "Listeners",
    "NewsLike",
    "OperationLike",
    "StoreLike",
    "Verb",
    "check_listeners",
    "operations_app",
    "peer_policy",
    "service_app",
]

"""The backends of the conformance suite."""

from tests.support.stores import backend, empty_store, state

__all__ = ["backend", "empty_store", "state"]

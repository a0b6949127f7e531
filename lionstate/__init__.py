"""A typed async store for agent runtimes: sessions, branches, messages and ordered progressions."""

__version__ = "0.1.0"

"""The ``lionstate`` command: parse, call a store or a daemon, print."""

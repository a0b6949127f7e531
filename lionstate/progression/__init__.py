"""Ordered message ids of a progression: phases, digest and the JSON value (pure), items and appends (on a connection).

Pure modules here do no I/O and may run in a worker thread; the others take an open connection first.
"""

"""Ordered message ids of a progression: phases, digest, the JSON value, items, appends and reads.

Pure modules here do no I/O and may run in a worker thread; the others take an open connection first.
"""

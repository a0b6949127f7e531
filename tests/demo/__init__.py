"""The demonstrations behind ``make demo`` and ``make demo-lionagi``: real processes, checked from outside."""

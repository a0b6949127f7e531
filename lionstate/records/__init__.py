"""Transaction scripts of the operational records, one module per job; none of them begins a transaction.

Contract: ADR-0055 D1.
"""

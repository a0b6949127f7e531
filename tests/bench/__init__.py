"""Measures what lionstate costs against the hardware's floor, LionAGI and other stores; see ``python -m tests.bench``."""

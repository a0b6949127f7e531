"""Measures what lionstate costs against the floor, LionAGI and other stores: ``python -m tests.bench``."""

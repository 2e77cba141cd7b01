"""Shared by all tests: how Hypothesis judges time.

A busy machine makes any example slow, which is no defect of the code; pytest's own timeout ends what hangs.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("kproxy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kproxy")

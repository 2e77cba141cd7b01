"""Shared by all tests: how Hypothesis judges time, and how many examples it tries.

A busy machine makes any example slow, which is no defect of the code; pytest's own timeout ends what hangs.
Each run tries other examples, so few are enough for one; ``--hypothesis-profile=thorough`` tries many (session ``long``).
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "kproxy", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40
)
settings.register_profile("thorough", settings.get_profile("kproxy"), max_examples=400)
settings.load_profile("kproxy")

"""What holds for every test: hypothesis draws the same examples each time and has no deadline."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A loaded machine is no failure, and neither is an example that nobody drew before.
settings.register_profile(
    "trainwarden", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("trainwarden")

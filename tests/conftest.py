"""What holds for all tests: what draws does not depend on the tests before, or on the machine."""

import random
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# A busy machine fails no test by being slow.
settings.register_profile(
    "patient",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("patient")


def _seed_everything() -> None:
    random.seed(0)
    np.random.seed(0)
    # Importing torch takes seconds, which tests of envs alone do not need.
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Seed what fixtures draw from."""
    _seed_everything()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Seed what the test itself draws from, however much its fixtures took."""
    _seed_everything()

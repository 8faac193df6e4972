"""For every test: a machine may stand still for a while, and that is no fault of what is tested."""

from __future__ import annotations

import inspect
import os

import httpx
from hypothesis import HealthCheck, settings

from tests.guardian import guard
from tests.warm_start import enable

PATIENCE_SECONDS = 60.0


def pytest_configure() -> None:
    """Wait longer for answers than the five seconds that httpx waits when nothing is said, and time no examples."""
    # One object is the default of all its calls; there is no other way to say it once.
    usual = inspect.signature(httpx.get).parameters["timeout"].default
    usual.connect = usual.read = usual.write = usual.pool = PATIENCE_SECONDS
    guard()
    enable()
    # Processes are started by threads beside gRPC, whose handlers of a fork would get in the way.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")

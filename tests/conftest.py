"""For every test: a machine may stand still for a while, and that is no fault of the server under test."""

from __future__ import annotations

import inspect

import httpx

PATIENCE_SECONDS = 60.0


def pytest_configure() -> None:
    """Wait longer for answers than the five seconds that httpx waits when nothing is said."""
    # One object is the default of all its calls; there is no other way to say it once.
    usual = inspect.signature(httpx.get).parameters["timeout"].default
    usual.connect = usual.read = usual.write = usual.pool = PATIENCE_SECONDS

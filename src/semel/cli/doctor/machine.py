"""Checks of the machine: Python, libraries, clock and settings."""

from __future__ import annotations

import importlib
import platform
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from semel.cli.doctor.check import Check, ok, problem

OLDEST_PYTHON = (3, 11)
EARLIEST = datetime(2024, 1, 1, tzinfo=UTC)
REINSTALL = "Install Semel again, with its dependencies: pip install --force-reinstall semel"


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> Check:
    """New enough for the code."""
    if version < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return problem("python", platform.python_version(), f"Use Python {wanted} or newer.")
    return ok("python", platform.python_version())


def check_sqlite() -> Check:
    """A SQLite without the fault that can lose committed pages."""
    try:
        apsw = importlib.import_module("apsw")
        schema = importlib.import_module("semel.store.sqlite.schema")
    except ImportError as error:
        return problem("sqlite", f"cannot be loaded ({error})", REINSTALL)
    version: str = apsw.sqlite_lib_version()
    return judge_sqlite(version, schema.OLDEST_LIBRARY)


def judge_sqlite(version: str, oldest: tuple[int, ...]) -> Check:
    """Whether this version may be trusted with data."""
    if tuple(int(part) for part in version.split(".")) < oldest:
        wanted = ".".join(map(str, oldest))
        return problem(
            "sqlite", f"{version} can lose committed data", f"Update apsw to bring SQLite {wanted} or newer."
        )
    return ok("sqlite", version)


def check_speedups(names: tuple[str, ...] = ("uvloop", "httptools")) -> Check:
    """The compiled loop and parser; there is no uvloop on Windows."""
    wanted = [name for name in names if name != "uvloop" or sys.platform != "win32"]
    missing = [name for name in wanted if not _is_importable(name)]
    if missing:
        return problem("speedups", f"{' and '.join(missing)} cannot be loaded", REINSTALL)
    return ok("speedups", " and ".join(wanted))


def _is_importable(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


def check_clock(now_seconds: float | None = None) -> Check:
    """Expiry goes by this clock."""
    now = datetime.fromtimestamp(time.time() if now_seconds is None else now_seconds, UTC)
    found = now.isoformat(timespec="seconds")
    if now < EARLIEST:
        return problem("clock", f"{found} is in the past", "Set the clock, or start its time service.")
    return ok("clock", found)


def check_settings(environment: Mapping[str, str]) -> Check:
    """The variables that a server started here would read."""
    settings = importlib.import_module("semel.server.settings_loader")
    try:
        settings.load_settings({}, environment, None)
    except settings.SettingsError as error:
        return problem("settings", str(error), "Mend or unset the variable: a server would not start with it.")
    return ok("settings", "the SEMEL_ variables can be used")

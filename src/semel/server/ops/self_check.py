"""Checks of this machine: Python, libraries, clock, settings, and the data folder.

No check opens the database. The disk test creates a file next to the database and deletes it.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple


class DoctorCheck(NamedTuple):
    """The subject of a check, its result, and advice when that is a problem."""

    name: str
    is_ok: bool
    found: str
    advice: str = ""
    namespace: str = ""
    """The namespace that it is about; empty for the default one and for the machine."""


def ok(name: str, found: str) -> DoctorCheck:
    """A check without a problem."""
    return DoctorCheck(name, True, found)


def problem(name: str, found: str, advice: str) -> DoctorCheck:
    """A check with a problem."""
    return DoctorCheck(name, False, found, advice)


def as_text(checks: Sequence[DoctorCheck]) -> str:
    """The checks as a part of a diagnosis bundle."""
    return json.dumps([check._asdict() for check in checks], indent=2) + "\n"


def check_machine() -> Iterator[DoctorCheck]:
    """The checks that need neither settings nor data."""
    yield check_python()
    yield check_sqlite()
    yield check_speedups()
    yield check_clock()


OLDEST_PYTHON = (3, 11)
EARLIEST = datetime(2024, 1, 1, tzinfo=UTC)
REINSTALL = "Install Semel again, with its dependencies: pip install --force-reinstall semel"


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> DoctorCheck:
    """The Python version."""
    if version < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return problem("python", platform.python_version(), f"Use Python {wanted} or newer.")
    return ok("python", platform.python_version())


def check_sqlite() -> DoctorCheck:
    """The SQLite version: older ones have a bug that can lose committed pages."""
    try:
        apsw = importlib.import_module("apsw")
        schema = importlib.import_module("semel.store.sqlite.schema")
    except ImportError as error:
        return problem("sqlite", f"cannot be loaded ({error})", REINSTALL)
    version: str = apsw.sqlite_lib_version()
    return judge_sqlite(version, schema.OLDEST_LIBRARY)


def sqlite_flaw() -> str:
    """What is wrong with the SQLite that is bundled; empty if it is a good one."""
    check = check_sqlite()
    return "" if check.is_ok else f"SQLite {check.found}"


def judge_sqlite(version: str, oldest: tuple[int, ...]) -> DoctorCheck:
    """Whether this version is safe for data."""
    if tuple(int(part) for part in version.split(".")) < oldest:
        wanted = ".".join(map(str, oldest))
        return problem(
            "sqlite", f"{version} can lose committed data", f"Update apsw to bring SQLite {wanted} or newer."
        )
    return ok("sqlite", version)


def check_speedups(names: tuple[str, ...] = ("uvloop", "httptools")) -> DoctorCheck:
    """The compiled event loop and parser; uvloop does not exist on Windows."""
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


def check_clock(now_seconds: float | None = None) -> DoctorCheck:
    """The clock, which decides expiry."""
    now = datetime.fromtimestamp(time.time() if now_seconds is None else now_seconds, UTC)
    found = now.isoformat(timespec="seconds")
    if now < EARLIEST:
        return problem("clock", f"{found} is in the past", "Set the clock, or start its time service.")
    return ok("clock", found)


def check_settings(environment: Mapping[str, str]) -> DoctorCheck:
    """The environment variables that a server on this machine would read."""
    settings = importlib.import_module("semel.server.settings_loader")
    try:
        settings.load_settings({}, environment, None)
    except settings.SettingsError as error:
        return problem("settings", str(error), "Correct or unset the variable: a server would not start with it.")
    return ok("settings", "the SEMEL_ variables are valid")


LOCK_NAME = "semel.lock"  # the store's own constant, which cannot be imported without its library
LEAST_FREE_BYTES = 1024**3
SYNCS = 7
SLOW_MS = 50.0
TOO_FAST_MS = 0.01
BLOCK = b"\0" * 8_192

if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> None:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        msvcrt.locking(handle, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _try_lock(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)


def check_folder(folder: Path) -> Iterator[DoctorCheck]:
    """The checks of the data folder; if it cannot be used, only that problem."""
    place = _nearest(folder)
    writable = check_writable(folder)
    yield writable
    if not writable.is_ok:
        return
    yield check_space(shutil.disk_usage(place).free)
    yield _check_sync(place)
    yield _check_lock(folder / LOCK_NAME)


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest existing parent in which it will be created."""
    whole = folder.absolute()
    return next(place for place in (whole, *whole.parents) if _is_there(place))


def _is_there(place: Path) -> bool:
    try:
        return place.exists()
    except OSError:  # below a folder that this user may not read
        return False


def check_writable(folder: Path) -> DoctorCheck:
    """Whether a server can write to the data folder, or create it."""
    place = _nearest(folder)
    if not place.is_dir():
        return problem("data folder", f"{place} is not a folder", "Name another with --data.")
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        advice = "Let this user write there, or name another with --data."
        return problem("data folder", f"{place} cannot be written to: {error.strerror}", advice)
    later = "" if folder.exists() else " will be created at the first start"
    return ok("data folder", f"{folder.absolute()}{later}")


def check_space(free_bytes: int) -> DoctorCheck:
    """Free disk space."""
    found = f"{free_bytes / 1024**3:.1f} GiB free"
    if free_bytes < LEAST_FREE_BYTES:
        return problem("disk space", found, "Free some disk space: below 16 MiB new writes are refused.")
    return ok("disk space", found)


def _check_sync(place: Path) -> DoctorCheck:
    try:
        median_ms = statistics.median(_sync_times_ms(place))
    except OSError as error:
        advice = "Use another disk: without fsync no write is durable."
        return problem("fsync", f"failed: {error.strerror}", advice)
    return ok("fsync", f"{median_ms:.2f} ms each{_remark(median_ms)}")


def _sync_times_ms(place: Path) -> Iterator[float]:
    with tempfile.TemporaryFile(dir=place) as probe:
        for _ in range(SYNCS):
            probe.write(BLOCK)
            probe.flush()
            start = time.perf_counter()
            os.fsync(probe.fileno())
            yield (time.perf_counter() - start) * 1_000


def _remark(median_ms: float) -> str:
    if median_ms > SLOW_MS:
        return " (slow: every commit waits for one)"
    if median_ms < TOO_FAST_MS:
        return " (too fast for a disk: is this folder in memory?)"
    return ""


def _check_lock(path: Path) -> DoctorCheck:
    """Try the lock without creating its file, and release it at once."""
    if not path.exists():
        return ok("lock", "free: no server has used this folder yet")
    holder = lock_holder(path.parent)
    if holder is None:
        return ok("lock", "free: no server is running on this folder")
    return ok("lock", f"held: a server is running on this folder{f' (process {holder})' if holder else ''}")


def lock_holder(folder: Path) -> int | None:
    """The process id of the server that runs on a data folder, 0 if it is not known; None if no server does."""
    try:
        handle = os.open(folder / LOCK_NAME, os.O_RDONLY if sys.platform != "win32" else os.O_RDWR)
    except OSError:
        return None
    try:
        _try_lock(handle)
    except OSError:
        with suppress(OSError):
            number = os.read(handle, 20).decode("ascii", "replace").strip()
            return int(number) if number.isdecimal() else 0
        return 0
    finally:
        os.close(handle)
    return None


def check_store(url: str) -> Iterator[DoctorCheck]:
    """Check a remote store as a server does at startup, without creating or changing anything."""
    # Imported here, because the checks above report a missing library.
    stores, protocol = (importlib.import_module(f"semel.store.{name}") for name in ("open", "protocol"))
    began = time.perf_counter()
    try:
        seen = stores.refuse_moved(url)
    except protocol.StoreError as error:
        yield problem("store", stores.shown(url), str(error))
        return
    took_ms = (time.perf_counter() - began) * 1_000
    made = f"schema version {seen.version}" if seen.version else "tables will be created at the first start"
    yield ok("store", f"{stores.shown(url)}: {made}; checked in {took_ms:.0f} ms")

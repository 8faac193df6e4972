"""Checks of the data folder: writable, disk syncs, and whether a server uses it.

Nothing here opens the database. A file for the test of the disk is made beside it and removed again.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from semel.cli.doctor.check import Check, ok, problem

LOCK_NAME = "semel.lock"  # as the store calls it, which cannot be asked where its library is missing
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


def check_folder(folder: Path) -> Iterator[Check]:
    """Everything about the folder; when it cannot be used, only that."""
    place = _nearest(folder)
    writable = _check_writable(folder, place)
    yield writable
    if not writable.is_ok:
        return
    yield check_space(shutil.disk_usage(place).free)
    yield _check_sync(place)
    yield _check_lock(folder / LOCK_NAME)


def _nearest(folder: Path) -> Path:
    """The folder, or while it is not made yet, the one it will be made in."""
    whole = folder.absolute()
    return next(place for place in (whole, *whole.parents) if _is_there(place))


def _is_there(place: Path) -> bool:
    try:
        return place.exists()
    except OSError:  # below a folder that this user may not look into
        return False


def _check_writable(folder: Path, place: Path) -> Check:
    if not place.is_dir():
        return problem("data folder", f"{place} is not a folder", "Name another with --data.")
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        advice = "Let this user write there, or name another with --data."
        return problem("data folder", f"{place} cannot be written to: {error.strerror}", advice)
    later = "" if folder.exists() else " will be made at the first start"
    return ok("data folder", f"{folder.absolute()}{later}")


def check_space(free_bytes: int) -> Check:
    """Room to grow."""
    found = f"{free_bytes / 1024**3:.1f} GiB free"
    if free_bytes < LEAST_FREE_BYTES:
        return problem("disk space", found, "Make room: a full disk stops every write.")
    return ok("disk space", found)


def _check_sync(place: Path) -> Check:
    try:
        median_ms = statistics.median(_sync_times_ms(place))
    except OSError as error:
        advice = "Use another disk: without fsync nothing can be promised."
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


def _check_lock(path: Path) -> Check:
    """Asks for the lock without making the file, and gives it back at once."""
    try:
        handle = os.open(path, os.O_RDONLY if sys.platform != "win32" else os.O_RDWR)
    except OSError:
        return ok("lock", "free: no server has used this folder yet")
    try:
        _try_lock(handle)
    except OSError:
        return ok("lock", f"held: a server is running on this folder{_holder(handle)}")
    finally:
        os.close(handle)
    return ok("lock", "free: no server is running on this folder")


def _holder(handle: int) -> str:
    with suppress(OSError):
        number = os.read(handle, 20).decode("ascii", "replace").strip()
        return f" (process {number})" if number.isdecimal() else ""
    return ""

"""Checks of a remote store: reachable, and durable commits."""

from __future__ import annotations

import time
from collections.abc import Iterator

from semel.cli.doctor.checks import DoctorCheck, ok, problem
from semel.store.open import inspect_store, shown
from semel.store.protocol import StoreError


def check_store(url: str) -> Iterator[DoctorCheck]:
    """Check a store as a server does at startup, without creating or changing anything."""
    began = time.perf_counter()
    try:
        seen = inspect_store(url, ())
    except StoreError as error:
        yield problem("store", shown(url), str(error))
        return
    took_ms = (time.perf_counter() - began) * 1_000
    made = f"schema version {seen.version}" if seen.version else "tables will be created at the first start"
    yield ok("store", f"{shown(url)}: {made}; checked in {took_ms:.0f} ms")

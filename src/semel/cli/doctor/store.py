"""Checks of a remote store: reachable, and durable commits."""

from __future__ import annotations

import time
from collections.abc import Iterator

from semel.cli.doctor.check import Check, ok, problem
from semel.store.open import look_at, shown
from semel.store.protocol import StoreError


def check_store(url: str) -> Iterator[Check]:
    """Look at it as a server would at its start; nothing is made or changed."""
    began = time.perf_counter()
    try:
        seen = look_at(url, ())
    except StoreError as error:
        yield problem("store", shown(url), str(error))
        return
    took_ms = (time.perf_counter() - began) * 1_000
    made = f"schema version {seen.version}" if seen.version else "tables will be made at the first start"
    yield ok("store", f"{shown(url)}: {made}; looked at in {took_ms:.0f} ms")

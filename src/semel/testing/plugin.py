"""The pytest plugin, loaded by its entry point: fixtures that import their modules when a test uses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from semel.testing.clock import FrozenClock

if TYPE_CHECKING:
    from semel.once import Once


@pytest.fixture
def frozen_clock() -> FrozenClock:
    """A clock that stands at 2026-01-01 00:00 UTC until the test moves it."""
    return FrozenClock()


@pytest.fixture
def once_store(frozen_clock: FrozenClock) -> Iterator[Once]:
    """An empty store of receipts in memory, on the frozen clock. It does not outlive its process."""
    from semel.once import Once  # noqa: PLC0415 - only tests that use a store need it

    store = Once.memory(clock=frozen_clock)
    yield store
    store.close()

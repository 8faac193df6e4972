"""Tests of idempotency: your call is repeated, run concurrently, cut off and killed, and its effects are counted.

    from semel.testing import assert_idempotent

    def test_a_charge_happens_once():
        assert_idempotent(lambda key: charge(key, 5), effects=count_charges)

The pytest plugin adds the fixtures `once_store` and `frozen_clock`. This package imports only a few modules of the
standard library, because pytest loads the plugin in every run where the package is installed.
"""

from typing import TYPE_CHECKING, Any

from semel.testing.clock import FrozenClock
from semel.testing.idempotency import assert_idempotent
from semel.testing.places import point
from semel.testing.report import IdempotencyReport, NotIdempotentError

if TYPE_CHECKING:
    from semel.testing.app_faults import AppNotIdempotentError, assert_app_idempotent
else:

    def __getattr__(name: str) -> Any:
        if name not in ("AppNotIdempotentError", "assert_app_idempotent"):
            raise AttributeError(f"module 'semel.testing' has no attribute {name!r}.")
        from semel.testing import app_faults  # noqa: PLC0415 - only a test of an application needs asyncio

        return getattr(app_faults, name)


__all__ = [
    "AppNotIdempotentError",
    "FrozenClock",
    "IdempotencyReport",
    "NotIdempotentError",
    "assert_app_idempotent",
    "assert_idempotent",
    "point",
]

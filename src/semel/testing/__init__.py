"""Tests of idempotency: your call is repeated, run concurrently, cut off and killed, and its effects are counted.

    from semel.testing import assert_idempotent

    def test_a_charge_happens_once():
        assert_idempotent(lambda key: charge(key, 5), effects=count_charges)

The pytest plugin adds the fixtures `once_store` and `frozen_clock`. This package imports only a few modules of the
standard library, because pytest loads the plugin in every run where the package is installed.
"""

from semel.testing.clock import FrozenClock
from semel.testing.idempotency import assert_idempotent
from semel.testing.places import point
from semel.testing.report import IdempotencyReport, NotIdempotentError

__all__ = ["FrozenClock", "IdempotencyReport", "NotIdempotentError", "assert_idempotent", "point"]

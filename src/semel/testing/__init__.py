"""Tests of idempotency: run your own call twice, at the same time, cut off, and killed, and count its effects.

    from semel.testing import assert_idempotent

    def test_a_charge_happens_once():
        assert_idempotent(lambda key: charge(key, 5), effects=count_charges)

The pytest plugin adds the fixtures `once_store` and `frozen_clock`. Importing this imports a few modules of the
standard library alone: the plugin is loaded by every run of pytest where this package is installed.
"""

from semel.testing.clock import FrozenClock
from semel.testing.idempotency import assert_idempotent
from semel.testing.places import point
from semel.testing.report import IdempotencyReport, NotIdempotentError

__all__ = ["FrozenClock", "IdempotencyReport", "NotIdempotentError", "assert_idempotent", "point"]

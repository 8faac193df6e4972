"""Bugs of quotas."""

from __future__ import annotations

from tests.mutants.planted.bug import Bug, bug

QUOTAS: tuple[Bug, ...] = (
    bug(
        "quota-forgets-shapes",
        "a request of a known shape is charged to its principal",
        "server/auth/authentication.py",
        "        connection.account.spend(size)\n",
        "        pass\n",
        "tests/server/quotas/test_wires.py::test_appends_of_a_known_shape_are_counted_and_a_refused_one_stores_nothing",
    ),
    bug(
        "quota-keeps-ended-connections",
        "a connection that has ended is no longer counted",
        "server/http/protocol.py",
        "            leave_account(self)\n        if self._is_counted:",
        "            pass\n        if self._is_counted:",
        "tests/server/quotas/test_wires.py::test_a_connection_beyond_the_quota_is_refused_and_closed_until_another_ends",
    ),
    bug(
        "quota-without-debt",
        "a body beyond the rate is paid for before the next request",
        "kernel/rate_limit.py",
        "        self._left -= tokens\n",
        "        self._left = max(1.0, self._left - tokens)\n",
        "tests/server/quotas/test_accounts.py",
    ),
)

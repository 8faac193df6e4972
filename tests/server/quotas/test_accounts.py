"""The accounts of principals: rates with a debt, connections, seats of readers, late refusals, idle accounts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from semel.kernel.rate_limit import TokenBucket
from semel.server.ops.audit_log import AuditLog
from semel.server.quotas import accounts
from semel.server.quotas.accounts import PROMPT_REFUSALS, QuotaAccount, QuotaExceededError, Quotas, leave_account
from semel.server.quotas.limits import QuotaFileError, QuotaLimits, read_quotas

SHOP = "client:shop"


class Notes:
    """Keeps audit lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, Mapping[str, Any]]] = []

    def note(self, event: str, details: Mapping[str, Any], address: str = "") -> None:
        self.lines.append((event, details))


class Line:
    """A connection."""

    def __init__(self) -> None:
        self.account: QuotaAccount | None = None


class Shop:
    """Quotas with a clock that the test sets."""

    def __init__(self, limits: QuotaLimits, named: Mapping[str, QuotaLimits] | None = None) -> None:
        self.time = 100.0
        self.notes = Notes()
        self.quotas = Quotas(cast(AuditLog, self.notes), lambda: self.time)
        self.quotas.replace(limits, named or {})

    def enter(self, line: Line, size: int = 0, actor: str = SHOP) -> str:
        """The quota that refuses a request; empty if none does."""
        try:
            self.quotas.enter(line, actor, size, lambda: {"path": "/x"})
        except QuotaExceededError as error:
            self.error = error
            return str(error.refusal.facts["quota"])
        return ""


def test_a_bucket_that_is_overdrawn_pays_its_debt_before_the_next_token() -> None:
    bucket = TokenBucket(100)
    assert bucket.wait(1.0) == 0
    bucket.spend(250)
    assert bucket.wait(1.0) == pytest.approx(1.51)
    assert bucket.wait(2.0) == pytest.approx(0.51)
    assert bucket.take(2.6) == 0


def test_a_new_rate_keeps_the_debt_and_fills_a_bucket_that_had_no_limit() -> None:
    bucket = TokenBucket(0)
    bucket.spend(1_000)
    bucket.set_rate(2)
    assert [bucket.take(1.0) for _ in range(3)] == [0, 0, pytest.approx(0.5)]
    bucket.set_rate(1)
    assert bucket.take(1.0) == pytest.approx(1.0)


def test_requests_beyond_the_rate_are_refused_until_the_bucket_has_a_token() -> None:
    shop, line = Shop(QuotaLimits(requests_per_second=2)), Line()
    assert [shop.enter(line) for _ in range(3)] == ["", "", "requests_per_second"]
    assert shop.error.refusal.code == "QUOTA_EXCEEDED"
    assert shop.error.refusal.retry_after_ms == 500
    assert shop.enter(line, actor="client:other") == ""
    shop.time += 0.5
    assert shop.enter(line) == ""
    assert shop.notes.lines == [("QUOTA_EXCEEDED", {"reason": "requests_per_second", "principal": SHOP, "path": "/x"})]


def test_a_body_larger_than_the_rate_is_taken_and_the_next_request_waits_for_the_debt() -> None:
    shop, line = Shop(QuotaLimits(body_bytes_per_second=1_000)), Line()
    assert [shop.enter(line, 3_000), shop.enter(line)] == ["", "body_bytes_per_second"]
    assert shop.error.refusal.retry_after_ms == pytest.approx(2_001, abs=1)
    shop.time += 2.1
    assert shop.enter(line, 1) == ""


def test_a_connection_counts_for_the_principal_of_its_latest_request() -> None:
    shop, first, second = Shop(QuotaLimits(connections=1)), Line(), Line()
    assert [shop.enter(first), shop.enter(first), shop.enter(second)] == ["", "", "connections"]
    assert shop.error.refusal.closes
    assert shop.enter(first, actor="client:other") == ""
    assert shop.enter(second) == ""
    leave_account(second)
    assert shop.enter(Line()) == ""


def test_a_seat_is_given_back_once() -> None:
    shop = Shop(QuotaLimits(live_readers=1))
    seat = shop.quotas.seat(SHOP)
    with pytest.raises(QuotaExceededError):
        shop.quotas.seat(SHOP)
    seat.close()
    seat.close()
    with shop.quotas.seat(SHOP), pytest.raises(QuotaExceededError):
        shop.quotas.seat(SHOP)
    assert shop.quotas.account(SHOP).readers == 0


def test_a_principal_that_goes_on_after_refusals_gets_them_late() -> None:
    shop, line = Shop(QuotaLimits(requests_per_second=1)), Line()
    shop.enter(line)
    late = []
    for _ in range(PROMPT_REFUSALS + 2):
        shop.enter(line)
        late.append(shop.error.late_seconds)
    assert late[:PROMPT_REFUSALS] == [0.0] * PROMPT_REFUSALS
    first, second = late[PROMPT_REFUSALS:]
    assert all(accounts.LATE_SECONDS <= one < 2 * accounts.LATE_SECONDS for one in (first, second))
    assert abs(first - second) > 0.1  # connections that are refused together do not go on together


def test_a_shape_may_enter_only_on_a_connection_of_its_principal_with_room() -> None:
    shop, line = Shop(QuotaLimits(requests_per_second=2)), Line()
    assert not shop.quotas.may_enter(line, SHOP)
    shop.enter(line)
    assert shop.quotas.may_enter(line, SHOP)
    assert not shop.quotas.may_enter(line, "client:other")
    shop.enter(line)
    assert not shop.quotas.may_enter(line, SHOP)


def test_a_shape_may_not_enter_by_the_account_of_another_namespace() -> None:
    here, there, line = Shop(QuotaLimits(requests_per_second=9)), Shop(QuotaLimits(requests_per_second=9)), Line()
    here.enter(line)
    there.enter(Line())
    assert here.quotas.may_enter(line, SHOP)
    assert not there.quotas.may_enter(line, SHOP)


def test_idle_accounts_are_dropped_and_used_ones_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MOST_ACCOUNTS", 3)
    shop, line = Shop(QuotaLimits(requests_per_second=5)), Line()
    shop.enter(line)
    for number in range(10):
        shop.time += 2
        gone = Line()
        shop.enter(gone, actor=f"user:{number}")
        leave_account(gone)
    assert len(shop.quotas) <= 4
    assert shop.quotas.account(SHOP) is line.account


def test_new_limits_reach_open_accounts_and_those_of_a_name_win() -> None:
    shop, line = Shop(QuotaLimits(), {SHOP: QuotaLimits(requests_per_second=1)}), Line()
    assert shop.quotas.is_on
    assert [shop.enter(line), shop.enter(line), shop.enter(Line(), actor="client:other")] == [
        "",
        "requests_per_second",
        "",
    ]
    shop.quotas.replace(QuotaLimits(), {})
    assert (shop.quotas.is_on, shop.enter(line)) == (False, "")


def test_a_quota_names_a_token_or_a_user_and_keeps_the_defaults_it_does_not_give(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text('[[quota]]\nname = "shop"\nconnections = 3\n[[quota]]\nname = "user:ann"\nlive_readers = 0\n')
    default = QuotaLimits(requests_per_second=7, live_readers=9)
    assert read_quotas(str(path), default) == {
        "client:shop": default._replace(connections=3),
        "user:ann": default._replace(live_readers=0),
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[quota]]\nconnections = 1\n", "name"),
        ('[[quota]]\nname = "a"\nspeed = 1\n', "unknown limit 'speed'"),
        ('[[quota]]\nname = "a"\nconnections = -1\n', "whole number"),
        ('[[quota]]\nname = "a"\nconnections = true\n', "whole number"),
        ('[[quota]]\nname = "a"\n[[quota]]\nname = "client:a"\n', "two"),
        ('quota = "a"\n', r"\[\[quota\]\]"),
    ],
)
def test_an_invalid_quota_says_what_to_correct(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(QuotaFileError, match=told):
        read_quotas(str(path), QuotaLimits())

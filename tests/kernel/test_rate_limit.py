"""How often something may happen: one bucket, and one for each who asks."""

from __future__ import annotations

from semel.kernel.rate_limit import RateLimits, TokenBucket


class Watch:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 5_000

    def __call__(self) -> int:
        return self.ms


def test_a_pace_is_kept_and_may_be_saved_up_for_a_second() -> None:
    bucket = TokenBucket(10)
    assert [bucket.take(100.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(100.0) > 0
    assert bucket.take(100.5) == 0
    assert TokenBucket(0).take(0.0) == 0


def test_everyone_is_counted_alone() -> None:
    rates = RateLimits(2, Watch())
    assert [rates.take("a") for _ in range(2)] == [0.0, 0.0]
    assert rates.take("a") > 0
    assert rates.take("b") == 0


def test_who_waits_as_long_as_told_may_go_on() -> None:
    watch = Watch()
    rates = RateLimits(4, watch)
    for _ in range(4):
        assert rates.take("a") == 0
    wait = rates.take("a")
    assert 0 < wait <= 0.25
    watch.ms += 249
    assert rates.take("a") > 0
    watch.ms += 1
    assert rates.take("a") == 0


def test_one_who_is_refused_does_not_wait_longer_for_asking_again() -> None:
    watch = Watch()
    rates = RateLimits(1, watch)
    assert rates.take("a") == 0
    for _ in range(100):
        assert rates.take("a") > 0
    watch.ms += 1_000
    assert rates.take("a") == 0


def test_no_limit_remembers_nobody() -> None:
    rates = RateLimits(0, Watch())
    assert [rates.take(number) for number in range(50)] == [0.0] * 50
    assert len(rates) == 0


def test_the_table_is_bounded_and_the_one_who_came_last_stays() -> None:
    watch = Watch()
    rates = RateLimits(1, watch, most=3)
    for who in ("a", "b", "c", "a", "d"):
        rates.take(who)
    assert len(rates) == 3
    # The bucket of `b` was forgotten, those of the others were not.
    assert [who for who in ("a", "c", "d") if rates.take(who) == 0] == []
    assert rates.take("b") == 0

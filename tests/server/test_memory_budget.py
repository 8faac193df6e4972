"""What many hold together has a bound, each of them has one, and what is let go can be had again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from semel.server.memory_budget import Budget


def test_in_all_and_for_each() -> None:
    budget = Budget(10, 4)
    shares = [budget.share(name) for name in ("a", "b", "c")]
    assert [share.resize(4) for share in shares] == [True, True, False]
    assert budget.held == 8
    assert shares[2].resize(2)
    assert not budget.share("a").resize(1)
    assert not budget.share("d").resize(1)
    assert not budget.share("d").has_room
    shares[0].close()
    assert budget.share("d").has_room
    assert budget.share("d").resize(4)


@pytest.mark.parametrize("size", [0, 1, 3, 4])
def test_a_share_may_grow_and_shrink(size: int) -> None:
    budget = Budget(10, 4)
    share = budget.share("a")
    assert share.resize(3)
    assert share.resize(size)
    assert (budget.held, share.size) == (size, size)
    assert not share.resize(5)
    assert (budget.held, share.size) == (size, size)


def test_two_shares_of_one_holder_count_together() -> None:
    budget = Budget(10, 4)
    first, second = budget.share("a"), budget.share("a")
    assert first.resize(3)
    assert not second.resize(2)
    assert second.resize(1)
    assert not first.has_room


def test_shrinking_is_never_refused() -> None:
    """Although the others hold all there is."""
    budget = Budget(6, 4)
    first, second = budget.share("a"), budget.share("b")
    assert first.resize(4)
    assert second.resize(2)
    assert first.resize(1)
    assert second.resize(4)


def test_closing_twice_gives_back_once() -> None:
    budget = Budget(10, 10)
    first, second = budget.share("a"), budget.share("a")
    assert first.resize(4)
    assert second.resize(4)
    first.close()
    first.close()
    assert budget.held == 4


def test_from_many_threads() -> None:
    budget = Budget(1_000, 100)

    def work(name: int) -> None:
        for _ in range(500):
            share = budget.share(name % 4)
            share.resize(7)
            share.resize(3)
            share.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert budget.held == 0
    assert budget.share(0).resize(100)

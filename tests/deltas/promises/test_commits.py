"""What a pull costs: nothing is written to disk for it where no promise rests on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.deltas.deaths import commits
from tests.deltas.peers import Peers, rows_in
from tests.deltas.wire import Deltas

PULLS = 20


@pytest.fixture
def peers(deltas: Deltas, gateway: str) -> Peers:
    """On SQLite and on PostgreSQL."""
    return Peers(deltas, gateway)


def counted(deltas: Deltas) -> Iterator[int]:
    """How many durable commits there were since it was last asked."""
    last = commits(deltas)
    while True:
        now = commits(deltas)
        yield now - last
        last = now


def makes_no_commit(made: Iterator[int], work: Callable[[], object]) -> bool:
    """Whether work that can be repeated makes no durable commit. The server's own sweeps make one now and then, so a
    second and a third round may show it; what a call commits, it commits in each of them.
    """
    for _ in range(3):
        next(made)
        for _ in range(PULLS):
            work()
        if next(made) == 0:
            return True
    return False


def test_g5_pages_of_a_client_that_only_reads_are_no_commits(peers: Peers, deltas: Deltas) -> None:
    reader, writer = peers.some(2)
    writer.insert(*(f"r{number}" for number in range(PULLS)))
    made = counted(deltas)
    next(made)
    for number in range(PULLS):
        assert rows_in(reader.pull(limit=1)) == [f"r{number}"]
    assert reader.pull() == []
    assert next(made) == 0


def test_g5_pages_of_a_client_that_writes_too_are_no_commits(peers: Peers, deltas: Deltas) -> None:
    both, writer = peers.some(2)
    made = counted(deltas)
    for number in range(PULLS):
        writer.insert(f"r{number}")
        both.insert(f"b{number}")
        next(made)
        assert rows_in(both.pull())[-1:] == [f"r{number}"]
        assert both.pull() == []
        assert next(made) == 0


def test_g5_a_push_of_nothing_new_is_no_commit(peers: Peers, deltas: Deltas) -> None:
    one, two = peers.some(2)
    own = one.change("INSERT", "o", title="t")
    first = one.push(own)
    made = counted(deltas)
    assert makes_no_commit(made, lambda: one.push(own))
    assert makes_no_commit(made, one.push)
    assert one.push(own) == one.push() == first
    two.insert("t")
    assert makes_no_commit(made, lambda: one.push(own))
    assert rows_in(one.pull()) == ["t"], "what is outstanding stays so"
    assert one.pull() == []

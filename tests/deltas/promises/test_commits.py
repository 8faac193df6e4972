"""What a pull costs: nothing is written to disk for it where no promise rests on it."""

from __future__ import annotations

from collections.abc import Iterator

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
    next(made)
    for _ in range(PULLS):
        assert one.push(own) == first
        assert one.push() == first
    assert next(made) == 0
    two.insert("t")
    next(made)
    for _ in range(PULLS):
        one.push(own)
    assert next(made) == 0
    assert rows_in(one.pull()) == ["t"], "what is outstanding stays so"
    assert one.pull() == []

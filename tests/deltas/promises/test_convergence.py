"""Random runs of three clients end with equal databases (A9), and readers beside writers miss nothing.

Over PostgreSQL requests go to two nodes in turn.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.deltas.cast import Cast
from tests.deltas.client import Scripted
from tests.deltas.deaths import Mortal, mortal
from tests.deltas.peers import Peer, Peers
from tests.deltas.play import OPERATIONS, Play
from tests.deltas.vectors import now_ms
from tests.deltas.wire import LASTING, Deltas, Message, fresh, hlcs
from tests.harness.together import eventually

SEEDS = range(3)
DEATHS = ("flushed", "committed", "committed", "answered")
"""Where servers die in a run, one after the other."""
AHEAD_MS = (3_000, 0, -1_000, -60_000)
"""The clocks of those who write at the same time."""
PUSHES, BATCH, PAGE = 20, 5, 7


@pytest.fixture
def cast(deltas: Deltas, gateway: str) -> Iterator[Cast]:
    """On SQLite and on PostgreSQL."""
    with Cast(deltas, gateway) as made:
        yield made


@pytest.mark.parametrize("seed", SEEDS)
def test_a9_three_clients_end_with_equal_databases(cast: Cast, seed: int) -> None:
    Play(cast, seed).run()
    assert cast.agree(), "nothing is left: the run has shown nothing"
    cast.check_untroubled()


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_answers_late_copies_and_small_pages_change_nothing(cast: Cast, seed: int) -> None:
    Play(cast, 100 + seed, troubles=True).run()
    assert cast.agree()
    cast.check_untroubled()
    ids = [entry["deltaId"] for entry in cast.deltas.log(cast.gateway)]
    assert len(ids) == len(set(ids))


# -- deaths ------------------------------------------------------------------------------------------------------------


class Fate:
    """Between two operations of a run, from time to time: a push or a pull that the server does not outlive."""

    def __init__(self, server: Mortal) -> None:
        self._server = server
        self._left = list(DEATHS)
        self._operations = itertools.count(1)

    def __call__(self, play: Play) -> None:
        if next(self._operations) % (OPERATIONS // len(DEATHS)):
            return
        client, other = play.chance.sample(play.cast.clients, 2)
        point = self._left.pop(0)
        play.cast.journal.append(f"the server is to die: {point}")
        if play.chance.random() < 0.5:
            client.insert(fresh("fate"), title="t")
            self._server.dies(point, client.push)
            eventually(lambda: self._is_told(client), "somebody takes the push")
        else:
            play.sync(client)
            other.insert(fresh("fate"), title="t")
            other.push_all()
            client.pull()
            # What it has shown by then may be forgotten.
            client.insert(fresh("fate"), title="t")
            self._server.dies(point, client.push)
            client.pull(lose=True)
            eventually(lambda: self._is_told(client), "somebody takes the push")

    @staticmethod
    def _is_told(client: Scripted) -> bool:
        """Whether all of its outbox is acknowledged: what was not heard in such a time is said again."""
        client.push()
        return not client.outbox

    @property
    def is_done(self) -> bool:
        return not self._left


@pytest.mark.parametrize("store", LASTING)
def test_a_server_that_dies_now_and_then_changes_nothing(tmp_path: Path, gateway: str, store: str) -> None:
    with mortal(tmp_path, store) as server, Cast(server.deltas, gateway) as cast:
        fate = Fate(server)
        Play(cast, 7, troubles=True).run(fate)
        assert fate.is_done
        assert cast.agree()
        cast.check_untroubled()


# -- a reader beside writers -------------------------------------------------------------------------------------------


class Crowd:
    """Writers who push at the same time, with clocks that differ, and those who read meanwhile."""

    def __init__(self, deltas: Deltas, gateway: str) -> None:
        peers = Peers(deltas, gateway)
        self.writers = [Peer(deltas, gateway, fresh("writer"), hlcs(now_ms() + ahead)) for ahead in AHEAD_MS]
        self.reader, self.both = peers.peer(), peers.peer()
        self._over, self._is_quiet = threading.Event(), threading.Event()
        """The writers have ended; and so has the one that writes and reads: it may be about to write when they end."""

    def run(self) -> tuple[list[Message], list[Message]]:
        """What the one who only reads has seen, and what the one who writes as well has."""
        with ThreadPoolExecutor(len(self.writers) + 2) as pool:
            reading, doing_both = pool.submit(self._read), pool.submit(self._do_both)
            try:
                for done in [pool.submit(self._write, writer) for writer in self.writers]:
                    done.result()
                self._over.set()
                done_both = doing_both.result()
            finally:
                self._over.set()
                self._is_quiet.set()
            return reading.result(), done_both

    def _write(self, writer: Peer) -> None:
        for number in range(PUSHES):
            writer.insert(*(f"{writer.name} {number} {place}" for place in range(BATCH)))

    def _read(self) -> list[Message]:
        found: list[Message] = []
        while True:
            is_last, before = self._is_quiet.is_set(), self.reader.cursor
            entries = self.reader.pull(limit=PAGE)
            assert self.reader.cursor > before or not entries
            found += entries
            if is_last and not entries:
                return found

    def _do_both(self) -> list[Message]:
        found: list[Message] = []
        for number in itertools.count():
            is_last = self._over.is_set()
            if not is_last or number == 0:
                self.both.insert(f"both {number}")
            entries = self.both.pull(limit=PAGE)
            found += entries
            if is_last and not entries:
                break
        return found


@pytest.mark.each_store
def test_readers_beside_writers_see_each_entry_once_in_order_and_none_late(deltas: Deltas, gateway: str) -> None:
    crowd = Crowd(deltas, gateway)
    read, done_both = crowd.run()
    everything = deltas.log(gateway)
    assert len(everything) >= len(AHEAD_MS) * PUSHES * BATCH
    assert ids_of(read) == ids_of(everything)
    others = [entry for entry in everything if entry["clientId"] != crowd.both.name]
    # It pushes before every pull, so it never shows a page: it is told again, but nothing for the first time late.
    assert list(dict.fromkeys(ids_of(done_both))) == ids_of(others)
    assert len(others) < len(everything)
    assert len({*ids_of(everything)}) == len(everything)


def ids_of(entries: Sequence[Message]) -> list[str]:
    return [entry["deltaId"] for entry in entries]

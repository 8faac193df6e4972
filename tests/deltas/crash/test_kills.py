"""kill -9 and what is there afterwards: every acknowledged delta, once; A10, R1, R5 and R6."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deltas.cast import Cast
from tests.deltas.deaths import AFTER, BEFORE, Mortal, mortal
from tests.deltas.peers import Peer, Peers, rows_in
from tests.deltas.vectors import columns, delta, now_ms, stamp
from tests.deltas.wire import LASTING, Answer, Deltas, Message, fresh, hlcs, serving
from tests.harness.together import eventually

KILLS = 3
STORED, SAMPLE = 3_000, 300
CONNECTIONS, REPEATS = 8, 13
"""A hundred pushes and a few."""
PACE_SECONDS = 0.05
"""Between two tries of a server that is not there."""


def test_a10_killed_after_each_acknowledgement_it_has_all_of_them_once(deltas: Deltas, gateway: str) -> None:
    pushed: list[Message] = []
    stamps = hlcs()
    for number in range(KILLS):
        rows = [f"row {number} {place}" for place in range(3)]
        batch = [delta("INSERT", columns(title=row), row=row, hlc=next(stamps)) for row in rows]
        assert deltas.push(gateway, batch)["deltas"] == batch
        pushed += batch
        deltas.crash()
        assert deltas.log(gateway, client=fresh("reader")) == pushed
    answer = deltas.push(gateway, pushed)
    assert (answer["accepted"], answer["duplicates"], answer["deltas"]) == (len(pushed), len(pushed), [])
    assert deltas.log(gateway) == pushed


def test_r1_what_was_stored_before_a_crash_is_known_after_it(anywhere: Deltas, gateway: str) -> None:
    stamps = hlcs()
    made = [delta("UPDATE", columns(n=number), row=f"row-{number % 500}", hlc=next(stamps)) for number in range(STORED)]
    for batch in (made[start : start + 1_000] for start in range(0, STORED, 1_000)):
        anywhere.push(gateway, batch)
    before = anywhere.gauges(gateway)
    assert (before["deltaCount"], before["logSize"], before["indexSize"]) == (STORED, STORED, 500)
    anywhere.crash()
    sample = random.Random(1).sample(made, SAMPLE)
    answer = anywhere.push(gateway, sample)
    assert (answer["duplicates"], answer["deltas"]) == (SAMPLE, [])
    after = anywhere.gauges(gateway)
    assert {name: after[name] for name in ("deltaCount", "logSize", "indexSize")} == {
        name: before[name] for name in ("deltaCount", "logSize", "indexSize")
    }
    assert anywhere.log(gateway) == made


# -- the same batch, again and again, while servers are killed ---------------------------------------------------------


def contended(client: str) -> list[Message]:
    """Deltas of which some win, some lose in part, and some have no effect at all."""
    base = stamp(now_ms() - 60_000)
    changes: list[tuple[str, int, dict[str, Any]]] = [
        ("INSERT", 10, {"title": "t", "note": "n"}),
        ("UPDATE", 5, {"title": "too late"}),
        ("UPDATE", 20, {"title": "u"}),
        ("UPDATE", 15, {"title": "too late", "done": 1}),
        ("DELETE", 18, {}),
        ("INSERT", 17, {"note": "too late"}),
    ]
    return [
        delta(op, columns(**cells), row=row, client=client, hlc=base + at)
        for row in ("r1", "r2")
        for op, at, cells in changes
    ]


class Repeated:
    """Pushes of one batch over several connections at once; each is repeated until it is answered."""

    def __init__(self, deltas: Deltas, gateway: str, batch: list[Message]) -> None:
        self._deltas = deltas
        self._gateway = gateway
        self._batch = batch
        self._lock = threading.Lock()
        self.answered = 0
        self.new = 0

    def work(self) -> None:
        """One connection's pushes."""
        line = Deltas(self._deltas.server)
        try:
            for _ in range(REPEATS):
                self._push(line)
        finally:
            line.close()

    def _push(self, line: Deltas) -> None:
        while (answer := self._tried(line)) is None:
            time.sleep(PACE_SECONDS)
        with self._lock:
            self.answered += 1
            self.new += answer["accepted"] - answer["duplicates"]

    def _tried(self, line: Deltas) -> Answer | None:
        try:
            answer = line.push(self._gateway, self._batch, expect=None)
        except httpx.TransportError:
            return None
        assert answer.http in (200, 503), answer.body
        return answer if answer.http == 200 else None


@pytest.mark.parametrize("store", LASTING)
def test_r5_one_batch_a_hundred_times_over_with_kills_is_stored_once(tmp_path: Path, store: str) -> None:
    gateway, once = fresh("gw"), fresh("gw")
    batch = contended("client-a")
    with serving(tmp_path / "data", store) as deltas:
        deltas.push(once, batch)
        pushes = Repeated(deltas, gateway, batch)
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            work = [pool.submit(pushes.work) for _ in range(CONNECTIONS)]
            nodes = itertools.cycle(deltas.nodes)
            for kill in range(KILLS):
                # The first comes at once: perhaps within the one commit that stores anything.
                eventually(partial(has_answered, pushes, kill * REPEATS), "pushes are answered")
                node = next(nodes)
                node.kill()
                node.start()
            for one in work:
                one.result()
        deltas.redial()
        assert pushes.answered == CONNECTIONS * REPEATS
        assert pushes.new in (0, len(batch)), "the one commit was whole; its answer may have been lost"
        log = deltas.log(gateway)
        assert log == deltas.log(once)
        assert len({entry["deltaId"] for entry in log}) == len(log) < len(batch)
        assert deltas.gauges(gateway)["deltaCount"] == len(batch)


def has_answered(pushes: Repeated, count: int) -> bool:
    return pushes.answered >= count


# -- the connection is cut after the commit, before the answer ---------------------------------------------------------


@pytest.fixture(scope="module", params=LASTING)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mortal]:
    """Dies where it is told to."""
    with mortal(tmp_path_factory.mktemp("mortal"), request.param) as made:
        yield made


def unanswered(call: Callable[[], object]) -> Callable[[], None]:
    """A call that must not be answered."""

    def make() -> None:
        with pytest.raises(httpx.TransportError):
            call()

    return make


@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_r6_a_push_that_was_not_answered_is_all_there_or_not_at_all(server: Mortal, gateway: str, point: str) -> None:
    deltas, batch = server.deltas, contended("client-a")
    server.dies(point, unanswered(partial(deltas.push, gateway, batch)))
    stored = len(batch) if point == AFTER else 0
    assert deltas.gauges(gateway)["deltaCount"] == stored
    before = deltas.log(gateway)
    answer = deltas.push(gateway, batch)
    assert answer["duplicates"] == stored
    assert len(answer["deltas"]) == (0 if stored else len(deltas.log(gateway)))
    assert deltas.log(gateway) == before or not stored
    again = deltas.push(gateway, batch)
    assert (again["duplicates"], again["deltas"]) == (len(batch), [])


@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_a_page_that_was_not_answered_is_given_again(server: Mortal, gateway: str, point: str) -> None:
    writer, reader = Peers(server.deltas, gateway).some(2)
    writer.insert("w1", "w2", "w3")
    alias = reader.insert("r1")
    server.dies(point, unanswered(partial(reader.look, alias, limit=4)))
    part = reader.look(alias, limit=4)
    assert rows_in(part) == ["w1", "w2"]
    check_rest(reader, part.hlc)


def check_rest(reader: Peer, since: int) -> None:
    for _ in range(2):  # each node in turn
        assert rows_in(reader.look(since)) == ["w3"]


def test_a_client_whose_server_dies_between_commit_and_answer_goes_on(server: Mortal, gateway: str) -> None:
    with Cast(server.deltas, gateway) as cast:
        one, two = cast.client(), cast.client()
        two.insert("t1", title="t")
        two.cycle()
        one.insert("o1", title="t")
        server.dies(AFTER, one.push)
        assert [waiting.tries for waiting in one.outbox] == [1]
        answer = one.push()
        assert answer is not None
        assert (answer["duplicates"], answer["deltas"]) == (1, [])
        cast.settle()
        cast.check_untroubled()
        cast.agree()

"""Several nodes write one log: positions come in visible order, so a reader of what is behind X misses nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from semel.store.open import open_store
from semel.store.protocol import Range, Store
from tests.harness.nodes import Nodes
from tests.harness.postgres.proxy import Proxy
from tests.harness.postgres.shared import fresh_url, shared_cluster
from tests.harness.server import RunningServer
from tests.store.conformance import LOCKS, MIGRATIONS, PARCEL, TABLES, THING, Clock, ParcelRow, changes, thing

COUNTER = thing(b"counter", 0, 0)
TRANSACTIONS = 60
JSON = {"Content-Type": "application/json"}


@contextmanager
def stores(count: int) -> Iterator[list[Store]]:
    url = fresh_url(lanes="2")
    opened = [open_store(url, TABLES, MIGRATIONS, Clock()) for _ in range(count)]
    yield opened
    for store in opened:
        store.close()


def add(store: Store, some: int) -> None:
    """A transaction that gives the next positions to some entries."""
    tx = store.begin(LOCKS)
    try:
        counter = tx.load({THING: [THING.key_of(COUNTER)]}, []).rows[THING].get(THING.key_of(COUNTER), COUNTER)
        entries = [(PARCEL, ParcelRow(counter.weight + place, b"", b"x")) for place in range(1, some + 1)]
        tx.flush(changes(entries, [(THING, counter._replace(weight=counter.weight + some))]))
        tx.commit()
    finally:
        tx.rollback()


def add_all(store: Store, sizes: list[int]) -> None:
    for some in sizes:
        add(store, some)


def follow(store: Store, is_over: Callable[[], bool]) -> int:
    """Read what is behind the last position, again and again; each answer must begin right behind it."""
    position = 0
    while True:
        was_over = is_over()
        with store.read() as snapshot:
            found = [row.number for row in snapshot.range(Range(PARCEL, "", (), 50, start=(position + 1,)))]
        assert found == list(range(position + 1, position + 1 + len(found))), f"a gap behind {position}: {found[:5]}"
        position += len(found)
        if was_over and not found:
            return position


def test_two_nodes_write_and_a_reader_on_each_sees_every_position_in_order() -> None:
    chance = random.Random(7)
    sizes = [chance.randrange(1, 6) for _ in range(TRANSACTIONS)]
    with stores(2) as (one, other), ThreadPoolExecutor(6) as pool:
        over = threading.Event()
        readers = [pool.submit(follow, store, over.is_set) for store in (one, other)]
        writers = [pool.submit(add_all, store, sizes[place::4]) for place, store in enumerate((one, other, one, other))]
        for writer in writers:
            writer.result()
        over.set()
        assert [reader.result() for reader in readers] == [sum(sizes)] * 2


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(tmp_path_factory.mktemp("order") / "data", 2, env={"SEMEL_STORE": fresh_url()}) as running:
        yield running


def test_followers_of_a_stream_on_two_nodes_read_the_same_and_all_of_it(nodes: Nodes) -> None:
    path = "/v1/stream/log"
    httpx.put(nodes.url + path, headers=JSON).raise_for_status()
    over = threading.Event()

    def write(url: str, writer: int) -> None:
        with httpx.Client(base_url=url) as client:
            for number in range(50):
                client.post(path, headers=JSON, content=b"%d" % (writer * 1_000 + number)).raise_for_status()

    def read(url: str) -> list[int]:
        offset, seen = "-1", list[int]()
        with httpx.Client(base_url=url) as client:
            while True:
                was_over = over.is_set()
                page = client.get(path, params={"offset": offset})
                page.raise_for_status()
                seen += page.json()
                offset = page.headers["Stream-Next-Offset"]
                if was_over and not page.json():
                    return seen

    urls = [node.url for node in nodes.each]
    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read, url) for url in urls]
        for writer in [pool.submit(write, urls[number % 2], number) for number in range(4)]:
            writer.result()
        over.set()
        first, second = (reader.result() for reader in readers)
    assert first == second
    assert sorted(first) == [writer * 1_000 + number for writer in range(4) for number in range(50)]
    for number in range(4):
        own = [message for message in first if message // 1_000 == number]
        assert own == sorted(own)


def test_appends_without_any_key_land_once_though_connections_are_cut(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The node finds out by itself what became of each commit, so nobody hears of the cuts."""
    chance = random.Random(11)
    with Proxy(shared_cluster().port) as proxy:
        url = fresh_url().replace(f":{shared_cluster().port}/", f":{proxy.port}/")
        server = RunningServer(tmp_path_factory.mktemp("cuts") / "data", env={"SEMEL_STORE": url})
        with server, httpx.Client(base_url=server.url, timeout=60) as client:
            client.put("/v1/stream/cuts", headers=JSON).raise_for_status()
            for number in range(60):
                chance.choice([proxy.cut_before, proxy.cut_after, proxy.come_back])()
                assert client.post("/v1/stream/cuts", headers=JSON, content=b"%d" % number).status_code == 204
            proxy.come_back()
            assert client.get("/v1/stream/cuts", params={"offset": "-1"}).json() == list(range(60))
        assert proxy.cuts > 20

"""What nodes over one database could do to each other, and do not: engines side by side, stopped at chosen points."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

import psycopg
import pytest

from semel.contracts.schema import MIGRATIONS, TABLES
from semel.contracts.streams.commands import NO_CONTENT, Append, Appended, Content, Create, Delete, ProducerClaim
from semel.contracts.streams.contract import Streams
from semel.contracts.streams.tables import CHUNK, RECEIPT, ReceiptRow
from semel.engine.contract import NotStoredError, OutcomeUnknownError, UnavailableError, Write
from semel.engine.engine import Engine, nowhere
from semel.engine.generations import Generations, Turn
from semel.kernel.retention import Window
from semel.server.world import SystemWorld
from semel.store.open import open_store
from semel.store.postgres import line
from semel.store.postgres.store import PostgresStore
from semel.store.protocol import Changes, Lock, Range, StoreError, StoreHeldError
from tests.engine.bench import PATIENCE_SECONDS, on_loop
from tests.postgres.cluster import Cluster
from tests.postgres.shared import fresh_url, shared_cluster
from tests.together import eventually, in_time, unless_held_up

STREAMS = Streams(Window(60_000))
TURNS = Generations({RECEIPT: 60_000})


def life(name: bytes) -> bytes:
    return name.ljust(16)


def create(name: bytes, of: bytes = b"") -> Create:
    return Create(name, name, life(of or name), b"text/plain", None, None, None, False, NO_CONTENT)


def append(name: bytes, data: bytes, producer: ProducerClaim | None = None) -> Append:
    return Append(name, None, b"", b"text/plain", Content(data, 1), False, None, producer, None)


def claim(seq: int) -> ProducerClaim:
    return ProducerClaim(b"p", b"p", 0, seq)


class Node:
    """An engine, and the store under it."""

    def __init__(self, url: str, reach: Callable[[str], None] = nowhere) -> None:
        world = SystemWorld()
        store = open_store(url, TABLES, MIGRATIONS, world.wall_ms)
        assert isinstance(store, PostgresStore)
        self.store = store
        self.engine = Engine(store, world, reach=reach)

    async def send(self, command: Any) -> Any:
        return await self.engine.submit(Write(TURNS if isinstance(command, Turn) else STREAMS, command))

    async def content(self, name: bytes, of: bytes = b"") -> list[bytes]:
        rows = await self.engine.read(lambda reading: reading.range(Range(CHUNK, "", (life(of or name),), 100)))
        return [row.data for row in rows]


@asynccontextmanager
async def nodes(*made: Node) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for node in made:
            await node.engine.stop()


class Stop:
    """Holds an engine once, when it reaches a point."""

    def __init__(self, point: str) -> None:
        self._point = point
        self._armed = threading.Event()
        self._reached = threading.Event()
        self._go = threading.Event()

    def __call__(self, point: str) -> None:
        if point == self._point and self._armed.is_set():
            self._armed.clear()
            self._reached.set()
            assert self._go.wait(PATIENCE_SECONDS)

    def arm(self) -> None:
        self._armed.set()

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, PATIENCE_SECONDS)

    def go(self) -> None:
        self._go.set()


@on_loop
async def test_freeing_an_old_life_leaves_the_producers_of_the_new_one_alone() -> None:
    """One node frees what a deleted stream left, while another writes to the stream that was made anew."""
    stop, url = Stop("decided"), fresh_url()
    sweeping, serving = Node(url, stop), Node(url)
    async with nodes(sweeping, serving):
        await serving.send(create(b"s", b"first"))
        await serving.send(append(b"s", b"old", claim(0)))
        await serving.send(Delete(b"s"))
        await serving.send(create(b"s", b"second"))
        (burial,) = await sweeping.engine.read(STREAMS.chores)
        stop.arm()
        freeing = asyncio.create_task(sweeping.send(burial))
        await stop.reached()
        first = asyncio.create_task(serving.send(append(b"s", b"new", claim(0))))
        await asyncio.sleep(0.2)
        stop.go()
        await freeing
        assert isinstance(await first, Appended)
        await serving.send(append(b"s", b"new", claim(0)))
        assert await serving.content(b"s", b"second") == [b"new"]


@on_loop
async def test_only_the_oldest_generation_is_ever_emptied() -> None:
    """Also when this node believes in generations that have turned meanwhile."""
    url = fresh_url(lanes="2")
    one, other = Node(url), Node(url)
    async with nodes(one, other):
        receipt = ReceiptRow(b"s", b"k", life(b"s"), b"f", 2**62, 204, 1, 0, None, None)
        for turn in range(4):
            await other.send(Turn(RECEIPT, -(2**40)))  # a window so long past that it is always due
            tx = other.store.begin((Lock(b"x"),))
            tx.flush(Changes({RECEIPT: [receipt._replace(key=b"%d" % turn)]}, {}, {}))
            tx.commit()
            one.store._retired.add(RECEIPT)
            one.store.generations = {"receipt": (turn + 1) % 3}
            one.store._tidied_at = 0.0
            one.store.tidy()
            with one.store.read() as snapshot:
                assert snapshot.get(RECEIPT, (b"s", b"%d" % turn)) is not None


@on_loop
async def test_a_turn_and_a_write_do_not_wait_in_a_circle() -> None:
    stop, url = Stop("locked"), fresh_url()
    turning, writing = Node(url), Node(url, stop)
    async with nodes(turning, writing):
        await writing.send(create(b"s"))
        before = deadlocks()
        for _ in range(20):
            await asyncio.gather(
                turning.send(Turn(RECEIPT, -(2**40))),
                turning.send(append(b"s", b"1")),
                writing.send(append(b"s", b"2")),
                writing.send(append(b"s", b"3")),
            )
        assert deadlocks() == before
        assert len(await writing.content(b"s")) == 60


def deadlocks() -> int:
    shared_cluster().execute("SELECT pg_stat_clear_snapshot()")
    count: int = shared_cluster().execute("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'")[0][0]
    return count


@on_loop
async def test_a_stream_that_somebody_holds_keeps_nobody_else_waiting_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "BUSY_SHARE", PATIENCE_SECONDS)  # the answers may take their time to get here
    url = fresh_url()
    holding, serving = Node(url), Node(f"{url}&patience_ms=1500")
    async with nodes(holding, serving):
        await serving.send(create(b"held"))
        await serving.send(create(b"free"))
        tx = holding.store.begin((Lock(b"stream:held"),))
        assert tx.now_ms
        sent = (serving.send(append(name, b"1")) for name in (b"held", b"free"))
        held, free = list[Any](await asyncio.gather(*sent, return_exceptions=True))
        tx.rollback()
        assert isinstance(held, NotStoredError)
        assert "held" in str(held)
        assert isinstance(free, Appended)
        assert isinstance(await serving.send(append(b"held", b"1")), Appended)


async def woken(node: Node, name: bytes, seconds: float) -> bool:
    return await node.engine.signals.watch(life(name)).wait(seconds)


@on_loop
async def test_a_lost_hint_is_made_up_for_by_the_next() -> None:
    url = fresh_url()
    speaking, listening = Node(url), Node(url)
    async with nodes(speaking, listening):
        await speaking.send(create(b"quiet"))
        await speaking.send(create(b"busy"))
        await asyncio.sleep(2.5)
        waiting = asyncio.create_task(woken(listening, b"quiet", PATIENCE_SECONDS / 2))
        await asyncio.sleep(0.05)
        wire = speaking.store._speaker._line._wire
        assert wire is not None
        shared_cluster().execute("SELECT pg_terminate_backend(%s)", (wire.connection.info.backend_pid,))
        await speaking.send(append(b"quiet", b"1"))
        for _ in range(10):
            await asyncio.sleep(0.02)
            await speaking.send(append(b"busy", b"1"))
        assert await waiting


@on_loop
async def test_a_turn_that_would_have_to_wait_comes_another_time() -> None:
    """Whoever waits for what all share makes everybody wait behind it."""
    url = fresh_url()
    standing, turning, writing = Node(url), Node(url), Node(url)
    async with nodes(standing, turning, writing):
        await writing.send(create(b"s"))
        tx = standing.store.begin((Lock(b"nobody else's"),))
        assert tx.now_ms
        turn, written = list[Any](
            await asyncio.gather(
                turning.send(Turn(RECEIPT, -(2**40))), turning.send(append(b"s", b"1")), return_exceptions=True
            )
        )
        assert isinstance(turn, NotStoredError)
        assert isinstance(written, Appended)
        tx.rollback()
        await turning.send(Turn(RECEIPT, -(2**40)))


def test_locks_that_are_held_one_after_the_other_are_not_taken_for_a_server_that_is_gone() -> None:
    in_time(wait_for_two_locks, 2.0)


def wait_for_two_locks(patience_seconds: float) -> None:
    with unless_held_up(patience_seconds * (line.BUSY_SHARE - line.LOCK_SHARE) / 2, shared_answers):
        check_two_locks(fresh_url(lanes="2"), patience_seconds)


def shared_answers() -> None:
    shared_cluster().execute("SELECT 1")


def check_two_locks(url: str, patience_seconds: float) -> None:
    urls = (url, f"{url}&patience_ms={round(patience_seconds * 1_000)}")
    standing, waiting = (open_store(one, TABLES, MIGRATIONS, SystemWorld().wall_ms) for one in urls)
    assert isinstance(waiting, PostgresStore)
    holder = standing.begin((Lock(b"b"),))
    assert holder.now_ms

    def wait() -> type[BaseException]:
        tx = waiting.begin((Lock(b"a"), Lock(b"b")))
        try:
            return type(tx.now_ms)  # type: ignore[return-value]
        except StoreError as error:
            return type(error)
        finally:
            tx.rollback()

    with ThreadPoolExecutor(2) as pool:
        told = [one.result() for one in [pool.submit(wait) for _ in range(2)]]
    assert told == [StoreHeldError, StoreHeldError]
    assert waiting._trust.era == 0
    holder.rollback()
    standing.close()
    waiting.close()


# With servers that are told to wait for a standby which is not there


@pytest.fixture(scope="module")
def primary() -> Any:
    with Cluster() as cluster:
        yield cluster


def wait_for(primary: Cluster, name: str) -> None:
    primary.set("synchronous_standby_names", name)
    while primary.execute("SHOW synchronous_standby_names") != [(name,)]:
        time.sleep(0.02)


def with_patience(check: Callable[[Cluster, str], None], primary: Cluster, seconds: float) -> None:
    """Have a check done by a node that waits for so long, on a new schema; again if the machine was too slow for it."""

    def try_it(seconds: float) -> None:
        url = f"{primary.url}?schema=patient_{time.monotonic_ns()}&patience_ms={round(seconds * 1_000)}"
        try:
            with unless_held_up(seconds / 10, primary.answers):
                check(primary, url)
        finally:
            wait_for(primary, "")

    in_time(try_it, seconds)


@on_loop
async def unknown_then_woken(primary: Cluster, url: str) -> None:
    node = Node(url)
    async with nodes(node):
        await node.send(create(b"s"))
        await asyncio.sleep(0.2)
        waiting = asyncio.create_task(woken(node, b"s", PATIENCE_SECONDS / 2))
        await asyncio.to_thread(wait_for, primary, "nobody")
        with pytest.raises(OutcomeUnknownError):
            await node.send(append(b"s", b"1"))
        await asyncio.to_thread(wait_for, primary, "")
        assert await waiting
        assert (await node.content(b"s"))[0] == b"1"


def test_readers_of_the_same_node_look_after_a_commit_that_nobody_knew_of(primary: Cluster) -> None:
    with_patience(unknown_then_woken, primary, 0.5)


def sessions(primary: Cluster) -> int:
    count: int = primary.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel'")[0][0]
    return count


def test_a_standby_that_is_away_costs_no_sessions(primary: Cluster) -> None:
    store = open_store(f"{primary.url}?schema=sessions&patience_ms=500", TABLES, MIGRATIONS, SystemWorld().wall_ms)
    wait_for(primary, "nobody")
    try:
        for _ in range(8):
            with pytest.raises(Exception, match="PostgreSQL"):
                store.begin((Lock(b"x"),))
            time.sleep(0.1)
        eventually(lambda: sessions(primary) <= 2, "no sessions are left")
    finally:
        wait_for(primary, "")
        store.close()


def test_after_a_crash_nobody_is_shown_what_the_standby_may_not_have(primary: Cluster) -> None:
    with_patience(crash_unconfirmed, primary, 0.6)


def crash_unconfirmed(primary: Cluster, url: str) -> None:
    store = open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)
    tx = store.begin((Lock(b"x"),))
    receipt = ReceiptRow(b"s", b"k", life(b"s"), b"f", 2**62, 204, 1, 0, None, None)
    tx.flush(Changes({RECEIPT: [receipt]}, {}, {}))
    wait_for(primary, "nobody")
    with pytest.raises(Exception, match="PostgreSQL"):
        tx.commit()
    tx.rollback()
    primary.kill()
    primary.start()
    with pytest.raises(Exception, match="PostgreSQL"), store.read():
        pass
    wait_for(primary, "")
    found: list[Any] = []

    def is_shown() -> bool:
        with suppress(StoreError), store.read() as snapshot:
            found.append(snapshot.get(RECEIPT, (b"s", b"k")))
        return bool(found)

    eventually(is_shown, "the store reads again")
    assert found == [receipt]
    store.close()


@on_loop
async def read_while_writes_wait(primary: Cluster, url: str) -> None:
    node = Node(f"{url}&readers=1")
    async with nodes(node):
        await node.send(create(b"s"))
        assert await node.content(b"s") == []
        await asyncio.to_thread(wait_for, primary, "nobody")
        for expected in (OutcomeUnknownError, NotStoredError, NotStoredError):
            with pytest.raises(expected):
                await node.send(append(b"s", b"1"))
            assert await node.content(b"s") == []
        await asyncio.to_thread(wait_for, primary, "")
        while True:
            try:
                await node.send(append(b"s", b"2"))
                break
            except NotStoredError:
                await asyncio.sleep(0.1)
        assert await node.content(b"s") == [b"1", b"2"]


def test_connections_that_are_there_read_on_while_the_standby_is_away(primary: Cluster) -> None:
    with_patience(read_while_writes_wait, primary, 0.6)


def test_a_warning_of_another_kind_is_no_doubt(primary: Cluster) -> None:
    url = f"{primary.url}?schema=warned"
    store = open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)
    primary.execute(
        "CREATE FUNCTION warned.warn() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE WARNING 'the database must be vacuumed'; RETURN NEW; END $$"
    )
    for table in ("semel_mark", "receipt_0"):
        primary.execute(f"CREATE TRIGGER warn BEFORE INSERT ON warned.{table} EXECUTE FUNCTION warned.warn()")
    tx = store.begin((Lock(b"x"),))
    tx.flush(Changes({RECEIPT: [ReceiptRow(b"s", b"k", b"", b"f", 2**62, 204, 1, 0, None, None)]}, {}, {}))
    tx.commit()
    assert isinstance(store, PostgresStore)
    assert store._lines[0].is_open, "the connection was thrown away"
    store.close()


@on_loop
async def many_callers(cluster: Cluster, tries: list[float]) -> None:
    node = Node(f"{cluster.url}?patience_ms=700")
    async with nodes(node):
        with suppress(NotStoredError, OutcomeUnknownError):  # a slow machine, and so little patience
            await node.send(create(b"s"))
        with suppress(UnavailableError):
            await node.content(b"s")
        await asyncio.to_thread(cluster.kill)
        tries.clear()
        told = await asyncio.gather(*(node.content(b"s") for _ in range(400)), return_exceptions=True)
        assert {type(one) for one in told} == {UnavailableError}


def test_callers_of_one_outage_wait_for_it_together(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[float] = []
    connect = psycopg.connect

    def count(*arguments: Any, **named: Any) -> psycopg.Connection:
        tries.append(time.monotonic())
        return connect(*arguments, **named)

    monkeypatch.setattr(psycopg, "connect", count)
    with Cluster() as cluster:
        many_callers(cluster, tries)
        assert len(tries) < 200, "each caller has waited and tried by itself"
        cluster.start()

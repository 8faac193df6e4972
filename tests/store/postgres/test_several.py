"""What nodes over one database could do to each other, and do not: engines side by side, stopped at chosen points."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from functools import partial
from typing import Any

import psycopg
import pytest

from semel.engine.clock import SystemWorld
from semel.engine.contract import NotStoredError, OutcomeUnknownError, UnavailableError, Write
from semel.engine.engine import Engine, nowhere
from semel.engine.generations import Generations, Turn
from semel.kernel.verdict import Window
from semel.store.open import open_store
from semel.store.postgres import connection
from semel.store.postgres.store import PgStore
from semel.store.protocol import Changes, Lock, Range, Store, StoreError, StoreHeldError
from semel.surfaces.schema import MIGRATIONS, TABLES
from semel.surfaces.streams.commands import NO_CONTENT, Append, Appended, Content, Create, Delete, ProducerClaim
from semel.surfaces.streams.contract import Streams
from semel.surfaces.streams.tables import CHUNK, RECEIPT, ReceiptRow
from tests.engine.rig import PATIENCE_SECONDS, on_loop
from tests.harness.postgres.cluster import Cluster
from tests.harness.postgres.shared import fresh_url, shared_cluster
from tests.harness.together import eventually, in_time, unless_held_up, unless_late, unless_slow

STREAMS = Streams(Window(60_000))
TURNS = Generations({RECEIPT: 60_000})
IDLE = "idle in transaction"


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
        assert isinstance(store, PgStore)
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
                turn_sometime(turning),
                turning.send(append(b"s", b"1")),
                writing.send(append(b"s", b"2")),
                writing.send(append(b"s", b"3")),
            )
        assert deadlocks() == before
        assert len(await writing.content(b"s")) == 60


async def turn_sometime(node: Node) -> None:
    """A turn for which somebody does not make room soon is refused, and comes another time."""
    while True:
        try:
            await node.send(Turn(RECEIPT, -(2**40)))
            return
        except NotStoredError:
            await asyncio.sleep(0.02)


def deadlocks() -> int:
    shared_cluster().execute("SELECT pg_stat_clear_snapshot()")
    count: int = shared_cluster().execute("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'")[0][0]
    return count


def test_a_stream_that_somebody_holds_keeps_nobody_else_waiting_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_SHARE", PATIENCE_SECONDS)  # the answers may take their time to get here
    in_time(write_beside_a_held_stream, 1.5)


@on_loop
async def write_beside_a_held_stream(patience_seconds: float) -> None:
    url, limit = fresh_url(), patience_seconds * connection.LOCK_SHARE
    holding = Node(url)
    async with nodes(holding):
        with unless_slow(limit):
            serving = Node(f"{url}&patience_ms={round(patience_seconds * 1_000)}")
        async with nodes(serving):
            with unless_slow(limit):
                await serving.send(create(b"held"))
                await serving.send(create(b"free"))
            tx = holding.store.begin((Lock(b"stream:held"),))
            assert tx.now_ms
            began = time.monotonic()
            sent = (serving.send(append(name, b"1")) for name in (b"held", b"free"))
            held, free = list[Any](await asyncio.gather(*sent, return_exceptions=True))
            tx.rollback()
            assert isinstance(held, NotStoredError)
            assert "held" in str(held)
            # Both wait together, then the held one alone; only if the free one was slow, there was a third wait.
            with unless_late(lambda: began, 3 * limit):
                assert isinstance(free, Appended)
            with unless_slow(limit):
                assert isinstance(await serving.send(append(b"held", b"1")), Appended)


def pid_of(one: connection.PgConnection) -> int:
    """The server's process at the other end of a line, once it is connected."""
    eventually(lambda: one._wire is not None, "the line is connected")
    assert one._wire is not None
    return one._wire.connection.info.backend_pid


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
        pid = await asyncio.to_thread(pid_of, speaking.store._speaker._line)
        waiting = asyncio.create_task(woken(listening, b"quiet", PATIENCE_SECONDS / 2))
        await asyncio.sleep(0.05)
        shared_cluster().execute("SELECT pg_terminate_backend(%s)", (pid,))
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
        await turn_sometime(turning)


def test_locks_that_are_held_one_after_the_other_are_not_taken_for_a_server_that_is_gone() -> None:
    in_time(wait_for_two_locks, 2.0)


def wait_for_two_locks(patience_seconds: float) -> None:
    with unless_held_up(patience_seconds * (connection.BUSY_SHARE - connection.LOCK_SHARE) / 2, shared_answers):
        check_two_locks(fresh_url(lanes="2"), patience_seconds)


def shared_answers() -> None:
    shared_cluster().execute("SELECT 1")


def check_two_locks(url: str, patience_seconds: float) -> None:
    urls = (url, f"{url}&patience_ms={round(patience_seconds * 1_000)}")

    def wait(waiting: Store) -> type[BaseException]:
        tx = waiting.begin((Lock(b"a"), Lock(b"b")))
        try:
            return type(tx.now_ms)  # type: ignore[return-value]
        except StoreError as error:
            return type(error)
        finally:
            tx.rollback()

    with ExitStack() as made:
        with unless_slow(patience_seconds * connection.LOCK_SHARE):
            standing, waiting = (made.enter_context(closing(opened(one))) for one in urls)
            for tx in [waiting.begin(()) for _ in range(waiting.lanes)]:  # connects, which takes its time too
                tx.rollback()
        holder = standing.begin((Lock(b"b"),))
        assert holder.now_ms
        began = time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            told = [one.result() for one in [pool.submit(wait, waiting) for _ in range(2)]]
        holder.rollback()
        # The locks are given up before an exchange is, unless it was held up on its way.
        with unless_late(lambda: began, patience_seconds * connection.BUSY_SHARE):
            assert told == [StoreHeldError, StoreHeldError]
            assert waiting.trust.era == 0


def opened(url: str) -> PgStore:
    store = open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)
    assert isinstance(store, PgStore)
    return store


# With servers that are told to wait for a standby which is not there


@pytest.fixture(scope="module")
def primary() -> Any:
    with Cluster() as cluster:
        yield cluster


def wait_for(primary: Cluster, name: str) -> None:
    primary.set("synchronous_standby_names", name)


def with_patience(check: Callable[[Cluster, str, float], None], primary: Cluster, seconds: float) -> None:
    """Have a check done by a node that waits for so long, on a new schema; again if the machine was too slow for it.

    It is told after which time the node gives the first things up, so that it knows when something was too slow.
    """

    def try_it(seconds: float) -> None:
        url = f"{primary.url}?schema=patient_{time.monotonic_ns()}&patience_ms={round(seconds * 1_000)}"
        try:
            with unless_held_up(seconds / 10, primary.answers):
                check(primary, url, seconds * connection.LOCK_SHARE)
        finally:
            wait_for(primary, "")

    in_time(try_it, seconds)


@on_loop
async def unknown_then_woken(primary: Cluster, url: str, limit: float) -> None:
    with unless_slow(limit):
        node = Node(url)
    async with nodes(node):
        with unless_slow(limit):
            await node.send(create(b"s"))
        # From here on the node writes nothing by itself, so that nobody finds out by chance what became of the commit.
        await asyncio.to_thread(eventually, lambda: not node.store._retired, "the node has tidied up")
        reading = asyncio.create_task(read_live(node, b"s", limit))
        await asyncio.to_thread(wait_for, primary, "nobody")
        with unless_slow(limit), pytest.raises(OutcomeUnknownError):
            await node.send(append(b"s", b"1"))
        await asyncio.to_thread(wait_for, primary, "")
        assert await reading == [b"1"]


async def read_live(node: Node, name: bytes, limit: float) -> list[bytes]:
    """What a reader finds that looks when it is woken, and only then."""
    watch = node.engine.signals.watch(life(name))
    while True:
        watch.arm()
        with unless_slow(limit):
            found = await node.content(name)
        if found:
            return found
        assert await watch.wait(PATIENCE_SECONDS / 2), "nobody has woken the reader"


def test_readers_of_the_same_node_look_after_a_commit_that_nobody_knew_of(primary: Cluster) -> None:
    with_patience(unknown_then_woken, primary, 0.5)


def sessions(primary: Cluster) -> int:
    count: int = primary.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel'")[0][0]
    return count


def test_a_standby_that_is_away_costs_no_sessions(primary: Cluster) -> None:
    with_patience(come_again_and_again, primary, 0.5)


def come_again_and_again(primary: Cluster, url: str, limit: float) -> None:
    with ExitStack() as made:
        with unless_slow(limit):
            store = made.enter_context(closing(opened(url)))
        wait_for(primary, "nobody")
        for _ in range(8):
            with pytest.raises(Exception, match="PostgreSQL"):
                store.begin((Lock(b"x"),))
            time.sleep(0.1)
        eventually(lambda: sessions(primary) <= 2, "no sessions are left")


def test_after_a_crash_nobody_is_shown_what_the_standby_may_not_have(primary: Cluster) -> None:
    with_patience(crash_unconfirmed, primary, 0.6)


def crash_unconfirmed(primary: Cluster, url: str, limit: float) -> None:
    with ExitStack() as made:
        with unless_slow(limit):
            store = made.enter_context(closing(opened(url)))
            tx = store.begin((Lock(b"x"),))
            receipt = ReceiptRow(b"s", b"k", life(b"s"), b"f", 2**62, 204, 1, 0, None, None)
            tx.flush(Changes({RECEIPT: [receipt]}, {}, {}))
            pid = pid_of(store.pool.lines[0])
        with unless_slow(limit):  # the server ends a transaction in which nothing happens
            wait_for(primary, "nobody")
            assert primary.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", (pid,)) == [(IDLE,)]
        with pytest.raises(Exception, match="PostgreSQL"):
            tx.commit()
        tx.rollback()
        with unless_slow(limit):  # as it does with one that has not got to its commit when nobody waits for it
            waits_for = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
            eventually(lambda: primary.execute(waits_for, (pid,)) == [("SyncRep",)], "it is committed", 2 * limit)
        primary.kill()
        primary.start()
        see_what_was_unconfirmed(primary, store, receipt)


def see_what_was_unconfirmed(primary: Cluster, store: PgStore, receipt: ReceiptRow) -> None:
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


TRUSTING_MS = 600_000
"""So long is a server believed to be the primary after a confirmed commit; by default it is a second."""


@on_loop
async def read_while_writes_wait(primary: Cluster, url: str, limit: float) -> None:
    with unless_slow(limit):
        node = Node(f"{url}&readers=1&trust_ms={TRUSTING_MS}")
    async with nodes(node):
        with unless_slow(limit):
            await node.send(create(b"s"))
            assert await node.content(b"s") == []
        await asyncio.to_thread(wait_for, primary, "nobody")
        for expected in (OutcomeUnknownError, NotStoredError, NotStoredError):
            with unless_slow(limit), pytest.raises(expected):
                await node.send(append(b"s", b"1"))
            with unless_slow(limit):
                assert await node.content(b"s") == []
        await asyncio.to_thread(wait_for, primary, "")
        while True:
            try:
                with unless_slow(limit):
                    await node.send(append(b"s", b"2"))
                break
            except NotStoredError:
                await asyncio.sleep(0.1)
        with unless_slow(limit):
            assert await node.content(b"s") == [b"1", b"2"]


def test_connections_that_are_there_read_on_while_the_standby_is_away_if_that_is_trusted(primary: Cluster) -> None:
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
    assert isinstance(store, PgStore)
    assert store.pool.lines[0].is_open, "the connection was thrown away"
    store.close()


@on_loop
async def many_callers(cluster: Cluster, tries: list[float], seconds: float) -> None:
    with unless_slow(seconds * connection.LOCK_SHARE):
        node = Node(f"{cluster.url}?patience_ms={round(seconds * 1_000)}")
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
        in_time(partial(many_callers, cluster, tries), 0.7)
        assert len(tries) < 200, "each caller has waited and tried by itself"
        cluster.start()

"""What becomes of a commit whose answer is lost: the store finds out, and says no less and no more than is true.

The connection is cut, or the server's own process ended, before, during and after COMMIT. Nothing here is simulated but
the network between the two.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from semel.store.open import open_store
from semel.store.postgres import connection
from semel.store.postgres.address import parse
from semel.store.postgres.connection import PgConnection, Trust
from semel.store.postgres.locks import slots_of, space
from semel.store.postgres.store import PgStore
from semel.store.protocol import (
    CommitUnknownError,
    Lock,
    Store,
    StoreAwayError,
    StoreHeldError,
    Touch,
    TryAgainError,
    Tx,
)
from tests.harness.postgres.cluster import Cluster
from tests.harness.postgres.proxy import Proxy
from tests.harness.postgres.shared import fresh_url, shared_cluster
from tests.harness.together import in_time, unless_slow
from tests.store.conformance import LOCKS, MIGRATIONS, TABLES, THING, Clock, changes, find, thing, write

PATIENCE_SECONDS = 60.0


def opened(url: str) -> Store:
    return open_store(url, TABLES, MIGRATIONS, Clock())


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy(shared_cluster().port) as made:
        yield made


@pytest.fixture
def store(proxy: Proxy) -> Iterator[Store]:
    """A store behind the proxy, with one connection that writes, which has been used."""
    url = fresh_url(lanes="1").replace(f":{shared_cluster().port}/", f":{proxy.port}/")
    made = opened(url)
    with psycopg.connect(shared_cluster().url, autocommit=True) as ear:
        ear.execute(f"LISTEN semel_{schema_of(made)}")
        write(made, [(THING, thing(number=1))])
        # When the hint has come, what the proxy sees next is what a test does.
        assert list(ear.notifies(timeout=PATIENCE_SECONDS, stop_after=1))
    yield made
    proxy.come_back()
    made.close()


def adding(store: Store, number: int) -> Tx:
    """A transaction that waits only for its commit."""
    tx = store.begin(LOCKS)
    assert tx.load({THING: [(b"a", number, 1)]}, []).rows[THING] == {}
    tx.flush(changes([(THING, thing(number=number))]))
    return tx


def ms(seconds: float) -> str:
    return str(round(seconds * 1_000))


@contextmanager
def hasty(url: str, patience_seconds: float) -> Iterator[tuple[Store, Tx]]:
    """A store with so little patience, and a transaction that waits only for its commit, if that could be had."""
    with ExitStack() as made:
        with unless_slow(patience_seconds * connection.LOCK_SHARE):
            store = made.enter_context(closing(opened(url)))
            tx = adding(store, 2)
        yield store, tx


def is_there(store: Store, number: int) -> bool:
    return find(store, THING, (b"a", number, 1)) is not None


def answers(store: Store) -> bool:
    """Whether the database is found again; it is looked for once a second."""
    try:
        is_there(store, 0)
        store.begin(LOCKS).rollback()
    except (StoreAwayError, StoreHeldError, TryAgainError):
        return False
    return True


def until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_cut_before_the_commit_reaches_the_server_nothing_is_stored(store: Store, proxy: Proxy) -> None:
    tx = adding(store, 2)
    proxy.cut_before()
    with pytest.raises(TryAgainError):
        tx.commit()
    tx.rollback()
    assert proxy.cuts == 1
    assert not is_there(store, 2)
    write(store, [(THING, thing(number=2))])


def test_cut_after_the_commit_it_is_known_to_be_stored(store: Store, proxy: Proxy) -> None:
    tx = adding(store, 2)
    proxy.cut_after()
    tx.commit()
    tx.rollback()
    assert proxy.cuts == 1
    assert is_there(store, 2)
    write(store, [(THING, thing(number=3))])


@pytest.mark.parametrize("cut", [Proxy.cut_before, Proxy.cut_after])
def test_cut_amid_loading_nothing_is_stored(store: Store, proxy: Proxy, cut: Callable[[Proxy], None]) -> None:
    tx = store.begin(LOCKS)
    cut(proxy)
    with pytest.raises(TryAgainError):
        tx.load({THING: [(b"a", 1, 1)]}, [])
    tx.rollback()
    write(store, [(THING, thing(number=2))])


@pytest.mark.parametrize("cut", [Proxy.cut_before, Proxy.cut_after])
def test_cut_amid_a_look_it_can_be_taken_again(store: Store, proxy: Proxy, cut: Callable[[Proxy], None]) -> None:
    with store.read() as snapshot:
        assert snapshot.get(THING, (b"a", 1, 1)) is not None
        cut(proxy)
        with pytest.raises(TryAgainError):
            snapshot.get(THING, (b"a", 1, 1))
    assert is_there(store, 1)


def test_a_soft_change_whose_commit_is_lost_is_tried_again(store: Store, proxy: Proxy) -> None:
    tx = store.begin((), durable=False)
    tx.flush(changes(touches=[Touch(THING, (b"a", 1, 1), "seen_at", 5)]))
    proxy.cut_before()
    with pytest.raises(TryAgainError):
        tx.commit()
    tx.rollback()


def test_a_database_that_stays_away_leaves_the_outcome_unknown_and_the_store_alive(proxy: Proxy) -> None:
    def lose_it(patience_seconds: float) -> None:
        url = fresh_url(lanes="1", patience_ms=ms(patience_seconds))
        proxy.come_back()
        with hasty(url.replace(f":{shared_cluster().port}/", f":{proxy.port}/"), patience_seconds) as (store, tx):
            proxy.cut_all(and_stay_away=True)
            with pytest.raises(CommitUnknownError):
                tx.commit()
            tx.rollback()
            with pytest.raises(StoreAwayError):
                store.begin(LOCKS)
            proxy.come_back()
            until(partial(answers, store))
            with unless_slow(patience_seconds * connection.LOCK_SHARE):
                assert not is_there(store, 2)
                write(store, [(THING, thing(number=2))])

    in_time(lose_it, 0.7)


def test_the_servers_own_process_ends_before_the_commit(store: Store) -> None:
    tx = adding(store, 2)
    end_sessions("state = 'idle in transaction'")
    with pytest.raises(TryAgainError):
        tx.commit()
    tx.rollback()
    assert not is_there(store, 2)


def test_a_transaction_that_the_server_still_carries_out_is_waited_for(store: Store, proxy: Proxy) -> None:
    """All of it has reached the server, which has not come to its mark yet: "not stored" would be a lie soon."""
    tx = adding(store, 2)
    with psycopg.connect(shared_cluster().url) as holder, ThreadPoolExecutor(1) as pool:
        holder.execute(f"LOCK TABLE {schema_of(store)}.thing IN EXCLUSIVE MODE")
        proxy.leave_after()
        committing: Future[object] = pool.submit(tx.commit)
        until(lambda: sessions(shared_cluster(), "wait_event_type = 'Lock' AND wait_event = 'relation'") == 1)
        until(lambda: committing.done() or sessions(shared_cluster(), "wait_event = 'advisory'") == 1)
        assert not committing.done()
        holder.rollback()
        committing.result(PATIENCE_SECONDS)
    tx.rollback()
    assert is_there(store, 2)


def end_sessions(which: str) -> None:
    """End the server's processes of the store's sessions."""
    asked = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'semel' AND {which}"
    assert shared_cluster().execute(asked) != []


def sessions(cluster: Cluster, which: str) -> int:
    """How many sessions of stores are like this."""
    asked = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel' AND {which}"
    count: int = cluster.execute(asked)[0][0]
    return count


# While COMMIT waits for a standby, the transaction is committed on disk and told to nobody.


@pytest.fixture(scope="module")
def primary() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def waiting(primary: Cluster) -> Iterator[tuple[Store, Tx, Future[object]]]:
    """A commit that waits for a standby which is not there."""
    store = opened(f"{primary.url}?schema=waiting_{time.monotonic_ns()}&lanes=1&patience_ms=120000")
    write(store, [(THING, thing(number=1))])
    tx = adding(store, 2)
    primary.set("synchronous_standby_names", "nobody")
    with ThreadPoolExecutor(1) as pool:
        committing: Future[object] = pool.submit(tx.commit)
        try:
            until(lambda: len(waiters(primary)) == 1)
            yield store, tx, committing
        finally:
            release(primary)
    tx.rollback()
    store.close()


def waiters(primary: Cluster) -> list[int]:
    """The server's processes whose commits wait."""
    asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'semel' AND wait_event = 'SyncRep'"
    return [pid for (pid,) in primary.execute(asked)]


def release(primary: Cluster) -> None:
    primary.set("synchronous_standby_names", "")


def act(primary: Cluster, function: str) -> None:
    asked = f"SELECT {function}(pid) FROM pg_stat_activity WHERE application_name = 'semel' AND wait_event = 'SyncRep'"
    primary.execute(asked)


@pytest.mark.parametrize("end", ["pg_terminate_backend", "pg_cancel_backend"])
def test_a_commit_that_is_broken_off_while_it_waits_is_no_success_yet(
    primary: Cluster, waiting: tuple[Store, Tx, Future[object]], end: str
) -> None:
    store, _, committing = waiting
    broken_off = waiters(primary)
    act(primary, end)
    # What it left is visible, and must not be believed before a commit behind it has been confirmed.
    until(lambda: len(waiters(primary)) == 1 and waiters(primary) != broken_off)
    assert not committing.done()
    release(primary)
    committing.result(PATIENCE_SECONDS)
    assert is_there(store, 2)


def test_a_standby_that_stays_away_leaves_the_outcome_unknown(primary: Cluster) -> None:
    def wait_in_vain(patience_seconds: float) -> None:
        url = f"{primary.url}?schema=unknown_{time.monotonic_ns()}&lanes=1&patience_ms={ms(patience_seconds)}"
        with hasty(url, patience_seconds) as (store, tx):
            try:
                with unless_slow(patience_seconds):  # a server may end a transaction in which nothing happens
                    primary.set("synchronous_standby_names", "nobody")
                    assert sessions(primary, "state = 'idle in transaction'") == 1
                with pytest.raises(CommitUnknownError):
                    tx.commit()
                tx.rollback()
            finally:
                release(primary)
            until(lambda: not waiters(primary))
            until(partial(answers, store))
            with unless_slow(patience_seconds * connection.LOCK_SHARE):
                assert is_there(store, 2)

    in_time(wait_in_vain, 0.8)


def test_a_server_that_crashes_and_recovers(primary: Cluster) -> None:
    store = opened(f"{primary.url}?schema=crash&lanes=1&patience_ms=120000")
    tx = adding(store, 2)
    primary.kill()
    starting = threading.Thread(target=primary.start)
    starting.start()
    with pytest.raises(TryAgainError):
        tx.commit()
    tx.rollback()
    starting.join()
    assert not is_there(store, 2)
    store.close()


def test_a_server_that_hangs_is_given_up_and_found_again(primary: Cluster) -> None:
    def hang(patience_seconds: float) -> None:
        url = f"{primary.url}?schema=hang_{time.monotonic_ns()}&lanes=1&patience_ms={ms(patience_seconds)}"
        with hasty(url, patience_seconds) as (store, tx):
            primary.pause()
            try:
                with pytest.raises(CommitUnknownError):
                    tx.commit()
                tx.rollback()
            finally:
                primary.resume()
            until(partial(answers, store))
            # The server takes up what stood in its queue, the commit among it.
            with unless_slow(patience_seconds * connection.LOCK_SHARE):
                write(store, [(THING, thing(number=3))])
                assert is_there(store, 3)

    in_time(hang, 1.0)


def test_a_server_that_hangs_once_it_is_connected_to_is_given_up(
    primary: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = psycopg.connect

    def connect_and_hang(*arguments: Any, **named: Any) -> psycopg.Connection:
        made = connect(*arguments, **named)
        primary.pause()
        return made

    monkeypatch.setattr(psycopg, "connect", connect_and_hang)
    try:
        with pytest.raises(StoreAwayError):
            PgConnection(parse(f"{primary.url}?patience_ms=700"), Trust(0.7)).open(time.monotonic())
    finally:
        primary.resume()


def test_once_one_connection_is_lost_the_others_are_not_trusted(proxy: Proxy) -> None:
    url = fresh_url(lanes="4", readers="4").replace(f":{shared_cluster().port}/", f":{proxy.port}/")
    store = opened(url)
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(store.read())
    transactions = [store.begin((Lock(b"%d" % number),)) for number in range(4)]
    for tx in transactions:
        assert tx.now_ms
        tx.rollback()
    proxy.cut_all(and_stay_away=False)
    with pytest.raises(TryAgainError), store.read():
        pass
    for _ in range(4):
        with store.read() as snapshot:
            assert snapshot.get(THING, (b"a", 1, 1)) is None
    write(store, [(THING, thing(number=1))])
    store.close()


# Conflicts


def outsider() -> psycopg.Connection:
    """Somebody else in the same database."""
    return psycopg.connect(shared_cluster().url)


def schema_of(store: Store) -> str:
    assert isinstance(store, PgStore)
    return store.address.schema


def test_a_deadlock_is_tried_again(store: Store) -> None:
    tx = store.begin(LOCKS)
    tx.load({}, [])
    tx.flush(changes(updates=[(THING, thing(number=1, weight=5))]))
    with outsider() as other:
        # The server ends the one that notices; the other one is made to notice late.
        other.execute("SET deadlock_timeout = '1min'")
        other.execute(f"UPDATE {schema_of(store)}.thing SET weight = 7")
        slot = slots_of(LOCKS)[0]
        wanted = (space(schema_of(store), slot.kind), slot.number)
        with ThreadPoolExecutor(1) as pool:
            taking = pool.submit(other.execute, "SELECT pg_advisory_xact_lock(%s, %s)", wanted)
            # The server looks for a circle once, a second after somebody has begun to wait: it must be closed by then.
            until(lambda: is_waiting(other.info.backend_pid))
            with pytest.raises(TryAgainError):
                tx.commit()
            tx.rollback()
            taking.result(PATIENCE_SECONDS)
        other.rollback()
    write(store, updates=[(THING, thing(number=1, weight=5))])


def test_a_row_that_changes_while_it_is_deleted_is_tried_again(store: Store) -> None:
    with outsider() as other, ThreadPoolExecutor(1) as pool:
        other.execute(f"UPDATE {schema_of(store)}.thing SET seen_at = 7")
        deleting = pool.submit(write, store, deletes=[(THING, (b"a", 1, 1))])
        until(is_someone_waiting)
        other.commit()
        with pytest.raises(TryAgainError):
            deleting.result(PATIENCE_SECONDS)
    write(store, deletes=[(THING, (b"a", 1, 1))])
    assert not is_there(store, 1)


def is_someone_waiting() -> bool:
    return sessions(shared_cluster(), "wait_event_type = 'Lock'") > 0


def is_waiting(pid: int) -> bool:
    asked = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
    return bool(shared_cluster().execute(asked, [pid])[0][0])


def test_a_soft_change_waits_for_nobody(store: Store) -> None:
    touches = [Touch(THING, (b"a", number, 1), "seen_at", 9) for number in (1, 2)]
    write(store, [(THING, thing(number=2))])
    with outsider() as other:
        other.execute(f"UPDATE {schema_of(store)}.thing SET weight = 7 WHERE number = 1")
        for durable in (True, False):
            tx = store.begin((), durable=durable)
            tx.flush(changes(touches=touches))
            assert tx.commit() == touches[:1]
        other.rollback()
    tx = store.begin((), durable=False)
    tx.flush(changes(touches=touches))
    assert tx.commit() == []
    assert [find(store, THING, (b"a", number, 1)).seen_at for number in (1, 2)] == [9, 9]  # type: ignore[union-attr]


def test_a_lock_that_is_held_for_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_SHARE", PATIENCE_SECONDS)  # the answer may take its time to get here

    def hold(patience_seconds: float) -> None:
        url = fresh_url()
        with closing(opened(url)) as holding, ExitStack() as waiting:
            with unless_slow(patience_seconds * connection.LOCK_SHARE):
                store = waiting.enter_context(closing(opened(f"{url}&patience_ms={ms(patience_seconds)}")))
                waiter = store.begin(LOCKS)
            holder = holding.begin(LOCKS)
            assert holder.now_ms > 0
            with pytest.raises(StoreHeldError):
                assert waiter.now_ms
            waiter.rollback()
            holder.rollback()
            with unless_slow(patience_seconds * connection.LOCK_SHARE):
                write(store, [(THING, thing())])

    in_time(hold, 0.7)

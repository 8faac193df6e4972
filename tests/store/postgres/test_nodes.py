"""Several nodes over one PostgreSQL: starting together, one that leads, readers that hear of others' writes, outages.

A node is told apart from the others, on the database's side, by the application name in its URL.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any

import httpx
import psycopg
import pytest

from semel.engine.clock import SystemWorld
from semel.store.open import open_store
from semel.store.postgres.commit_fate import NUMBERS
from semel.store.postgres.connection import LOCK_SHARE
from semel.store.postgres.locks import LockKind, space
from semel.store.postgres.notify import decode
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.harness.postgres.cluster import Cluster
from tests.harness.postgres.shared import fresh_url, shared_cluster
from tests.harness.server import RunningServer
from tests.harness.together import in_time, unless_late, unless_slow

PATIENCE_SECONDS = 90.0
"""How long anything may take to become true."""
LONG_POLL_MS = 600_000
"""Longer than that, so that a reader who is not woken fails its test."""
JSON = {"Content-Type": "application/json"}
STREAM = "/v1/stream/s"
AT_ONCE = 8


def schema_of(url: str) -> str:
    return httpx.URL(url).params["schema"]


def of_role(url: str, role: str, database: str = "postgres") -> str:
    """The same URL for another role, and maybe another database."""
    return url.replace("//semel@", f"//{role}@").replace("/postgres?", f"/{database}?")


def node(folder: Path, name: str, url: str, **settings: str) -> RunningServer:
    """One node, not started yet."""
    env = {"SEMEL_STORE": f"{url}&application_name={name}", "SEMEL_STREAMS_LONG_POLL_MS": str(LONG_POLL_MS)}
    return RunningServer(folder / name, env=env | {f"SEMEL_{key}": value for key, value in settings.items()})


def eventually(check: Callable[[], bool], what: str) -> None:
    """Wait until a check holds."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not check():
        assert time.monotonic() < deadline, f"not in {PATIENCE_SECONDS} s: {what}"
        time.sleep(0.05)


def create(server: RunningServer, **headers: str) -> None:
    fields = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
    until_stored(lambda: httpx.put(server.url + STREAM, headers=fields, timeout=PATIENCE_SECONDS))


def until_stored(send: Callable[[], httpx.Response]) -> None:
    """Repeat what may be repeated: a node with little patience gives a slow database up."""
    told: list[httpx.Response] = []

    def is_answered() -> bool:
        told.append(send())
        return told[-1].status_code != 503

    eventually(is_answered, "the database answers in time")
    told[-1].raise_for_status()


def append(server: RunningServer, message: object, key: str | None = None) -> httpx.Response:
    fields = JSON if key is None else JSON | {"Idempotency-Key": key}
    return httpx.post(server.url + STREAM, json=message, headers=fields, timeout=PATIENCE_SECONDS)


def messages(server: RunningServer) -> Any:
    return httpx.get(server.url + STREAM, timeout=PATIENCE_SECONDS).raise_for_status().json()


def metric(server: RunningServer, name: str) -> float:
    value: float = httpx.get(server.url + "/metrics").json()[name]
    return value


# -- Starting ---------------------------------------------------------------------------------------------------------


def open_and_close(url: str) -> None:
    open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms).close()


def open_at_once(url: str) -> None:
    """As many nodes as there are start in the same moment; each must succeed."""
    barrier = Barrier(AT_ONCE)

    def start() -> None:
        barrier.wait(PATIENCE_SECONDS)
        open_and_close(url)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for opening in [pool.submit(start) for _ in range(AT_ONCE)]:
            opening.result(PATIENCE_SECONDS)


def versions(url: str) -> Sequence[tuple[Any, ...]]:
    return shared_cluster().execute(f"SELECT version FROM {schema_of(url)}.semel_schema")


@pytest.mark.parametrize("is_there", [False, True], ids=["no schema", "an empty schema"])
def test_many_nodes_start_at_once_on_nothing(is_there: bool) -> None:
    url = fresh_url()
    if is_there:
        shared_cluster().execute(f"CREATE SCHEMA {schema_of(url)}")
    open_at_once(url)
    assert versions(url) == [(MIGRATIONS[-1].number,)]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_many_nodes_start_at_once_whatever_isolation_is_usual_there(isolation: str) -> None:
    url = fresh_url()
    role = f"role_of_{schema_of(url)}"
    shared_cluster().execute(f"CREATE ROLE {role} LOGIN")
    shared_cluster().execute(f"GRANT CREATE ON DATABASE postgres TO {role}")
    shared_cluster().execute(f"ALTER ROLE {role} SET default_transaction_isolation = '{isolation}'")
    open_at_once(of_role(url, role))
    assert versions(url) == [(MIGRATIONS[-1].number,)]


def test_processes_that_start_at_once_on_nothing_become_nodes(tmp_path: Path) -> None:
    url = fresh_url()
    servers = [node(tmp_path, f"n{number}", url) for number in range(AT_ONCE)]
    try:
        started = [(server, server.launch({})) for server in servers]
        eventually(
            lambda: all(process.poll() is not None or is_ready(server) for server, process in started),
            "every node is ready, or has ended",
        )
        assert [server.output_tail() for server, process in started if process.poll() is not None] == []
        create(servers[0])
        for number, server in enumerate(servers):
            append(server, number).raise_for_status()
        assert messages(servers[-1]) == list(range(AT_ONCE))
    finally:
        for server in servers:
            server.kill()
    assert versions(url) == [(MIGRATIONS[-1].number,)]


def is_ready(server: RunningServer) -> bool:
    try:
        return httpx.get(server.url + "/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_a_node_that_starts_beside_another_needs_no_right_to_change_the_schema(tmp_path: Path) -> None:
    url = fresh_url()
    role = f"role_of_{schema_of(url)}"
    cluster = shared_cluster()
    cluster.execute(f"CREATE ROLE {role} LOGIN")
    with node(tmp_path, "owner", url) as owner:
        create(owner)
        append(owner, "owner's").raise_for_status()
        cluster.execute(f"GRANT USAGE ON SCHEMA {schema_of(url)} TO {role}")
        rights = "SELECT, INSERT, UPDATE, DELETE"
        cluster.execute(f"GRANT {rights} ON ALL TABLES IN SCHEMA {schema_of(url)} TO {role}")
        shape = shape_of(url)
        with node(tmp_path, "guest", of_role(url, role)) as guest:
            append(guest, "guest's", key="1").raise_for_status()
            assert append(owner, "guest's", key="1").headers["Idempotency-Replayed"] == "true"
            assert messages(guest) == ["owner's", "guest's"]
        assert shape_of(url) == shape


def shape_of(url: str) -> list[tuple[Any, ...]]:
    """Every relation of the schema, so that one that was made anew or changed is another."""
    query = "SELECT oid, relname, relnatts, reloptions FROM pg_class WHERE relnamespace = %s::regnamespace ORDER BY 1"
    return shared_cluster().execute(query, [schema_of(url)])


# -- The one that leads -----------------------------------------------------------------------------------------------


def leaders(url: str) -> list[str]:
    """The nodes that hold the leader's lock."""
    query = """
    SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND classid::int8 = %s AND objid = 0
    """
    unsigned = space(schema_of(url), LockKind.LEADER) % 2**32
    return [name for (name,) in shared_cluster().execute(query, [unsigned])]


def streams_in(url: str) -> int:
    count: int = shared_cluster().execute(f"SELECT count(*) FROM {schema_of(url)}.stream")[0][0]
    return count


def test_one_node_leads_and_when_it_is_killed_another_does_its_chores(tmp_path: Path) -> None:
    url = fresh_url()
    nodes = {name: node(tmp_path, name, url, SWEEP_INTERVAL_MS="100") for name in ("a", "b")}
    with nodes["a"], nodes["b"]:
        eventually(lambda: len(leaders(url)) == 1, "one node leads")
        [first] = leaders(url)
        [other] = set(nodes) - {first}
        for _ in range(10):
            time.sleep(0.1)
            assert leaders(url) == [first]
        nodes[first].kill()
        eventually(lambda: leaders(url) == [other], "the other node leads")

        def see_it_swept(seconds: float) -> None:
            began = time.monotonic()
            create(nodes[other], Stream_TTL=str(round(seconds)))
            with unless_late(lambda: began, seconds):
                assert streams_in(url) == 1
            eventually(lambda: streams_in(url) == 0, "the stream has been swept")

        in_time(see_it_swept, 1.0)
        assert leaders(url) == [other]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_receipt_lives_as_long_as_its_node_keeps_it_though_the_leader_keeps_its_own_shorter(
    is_killed: bool, tmp_path: Path
) -> None:
    """The node may be killed as soon as it has answered: it has told the others before."""
    url, brief_ms, numbers = fresh_url(), 200, range(20)
    brief = node(tmp_path, "a", url, SWEEP_INTERVAL_MS="50", STREAMS_IDEMPOTENCY_TTL_MS=str(brief_ms))
    lasting = node(tmp_path, "b", url, SWEEP_INTERVAL_MS="3600000", STREAMS_IDEMPOTENCY_TTL_MS="600000")
    with brief:
        create(brief)
        eventually(lambda: shared_cluster().execute(f"SELECT 1 FROM {schema_of(url)}.generation") != [], "one leads")
        with lasting:
            offsets = [append(lasting, number, key=str(number)).headers["Stream-Next-Offset"] for number in numbers]
            if is_killed:
                lasting.kill()
            time.sleep(20 * brief_ms / 1_000)  # the leader looks whether its own receipts have expired
            for server in [brief] if is_killed else [brief, lasting]:
                again = [append(server, number, key=str(number)) for number in numbers]
                assert [one.headers.get("Idempotency-Replayed") for one in again] == ["true"] * len(numbers)
                assert [one.headers["Stream-Next-Offset"] for one in again] == offsets
    with brief:
        assert messages(brief) == list(numbers)


def test_a_leader_whose_session_is_cut_is_followed_by_one_node(tmp_path: Path) -> None:
    url = fresh_url()
    with node(tmp_path, "a", url, SWEEP_INTERVAL_MS="100") as a, node(tmp_path, "b", url, SWEEP_INTERVAL_MS="100"):
        for _ in range(3):
            eventually(lambda: len(leaders(url)) == 1, "one node leads")
            unsigned = space(schema_of(url), LockKind.LEADER) % 2**32
            # It waits for the end of the session, so that the next look does not find the same one again.
            ended = f"pg_terminate_backend(pid, {round(PATIENCE_SECONDS * 1_000)})"
            cut = f"SELECT {ended} FROM pg_locks WHERE locktype = 'advisory' AND classid::int8 = %s"
            assert shared_cluster().execute(cut, [unsigned]) == [(True,)]
        eventually(lambda: len(leaders(url)) == 1, "one node leads")
        create(a)


# -- Readers on another node ------------------------------------------------------------------------------------------


@contextmanager
def long_poll(server: RunningServer) -> Iterator[Future[httpx.Response]]:
    """A reader that waits at the end of the stream, and is known to wait."""

    def wait() -> httpx.Response:
        return httpx.get(f"{server.url}{STREAM}?live=long-poll&offset=now", timeout=PATIENCE_SECONDS)

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(wait)
        eventually(lambda: metric(server, "semel_live_readers") == 1, "the reader waits")
        yield answer


def test_a_long_poll_on_one_node_ends_with_an_append_on_another(tmp_path: Path) -> None:
    url = fresh_url()
    with node(tmp_path, "a", url) as a, node(tmp_path, "b", url) as b:
        create(a)
        for number in range(3):
            with long_poll(b) as answer:
                append(a, number).raise_for_status()
                assert answer.result().json() == [number]


def test_a_reader_on_one_node_sees_each_append_on_another_in_order(tmp_path: Path) -> None:
    """Each append waits until the last one was seen, so readers who only looked once a second would take too long."""
    url = fresh_url()
    with node(tmp_path, "a", url) as a, node(tmp_path, "b", url) as b:
        create(a)
        deadline = time.monotonic() + PATIENCE_SECONDS
        with httpx.stream("GET", f"{b.url}{STREAM}?live=sse&offset=-1", timeout=PATIENCE_SECONDS) as live:
            seen = data_of(live)
            for number in range(50):
                append(a, number).raise_for_status()
                assert next(seen) == [number]
                assert time.monotonic() < deadline


def test_a_reader_on_one_node_sees_a_burst_of_appends_on_another_in_order(tmp_path: Path) -> None:
    url = fresh_url()
    with node(tmp_path, "a", url) as a, node(tmp_path, "b", url) as b, ThreadPoolExecutor(1) as pool:
        create(a)
        with httpx.stream("GET", f"{b.url}{STREAM}?live=sse&offset=-1", timeout=PATIENCE_SECONDS) as live:
            appending = pool.submit(lambda: [append(a, number).raise_for_status() for number in range(50)])
            found: list[int] = []
            for some in data_of(live):
                found += some
                if len(found) >= 50:
                    break
        appending.result()
        assert found == list(range(50))


def data_of(live: httpx.Response) -> Iterator[list[Any]]:
    """The messages of each data event of a JSON stream."""
    kind = ""
    for line in live.iter_lines():
        name, _, value = line.partition(":")
        if name == "event":
            kind = value.strip()
        elif name == "data" and kind == "data":
            yield json.loads(value)


def test_a_hint_names_its_commit_and_is_sent_after_it(tmp_path: Path) -> None:
    url = fresh_url()
    with node(tmp_path, "a", url) as a, psycopg.connect(shared_cluster().url, autocommit=True) as ear:
        ear.execute(f'LISTEN "semel_{schema_of(url)}"')
        create(a)
        # More than one when they come together: the start commits, too.
        hints = [decode(heard.payload) for heard in ear.notifies(timeout=PATIENCE_SECONDS, stop_after=1)]
        stored: dict[int, int] = dict(ear.execute(f"SELECT id, number FROM {schema_of(url)}.semel_mark").fetchall())
        assert hints
        for hint in hints:
            assert hint is not None
            assert hint.marks
            assert all(stored[mark] >= number for mark, number in hint.marks.items())


@contextmanager
def mute_database() -> Iterator[tuple[str, str]]:
    """A role, and a database in which it may do all but tell others: (role, database)."""
    cluster = shared_cluster()
    cluster.execute("CREATE ROLE mute LOGIN")
    cluster.execute("CREATE DATABASE silent OWNER mute")
    cluster.execute("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC", database="silent")
    try:
        yield "mute", "silent"
    finally:
        # Those who have left may still be leaving, and are waited for no longer than five seconds.
        inside = "SELECT 1 FROM pg_stat_activity WHERE datname = 'silent'"
        eventually(lambda: not cluster.execute(inside), "everybody has left")
        cluster.execute("DROP DATABASE silent WITH (FORCE)")
        cluster.execute("DROP ROLE mute")


def test_a_reader_is_woken_though_the_hint_was_lost(tmp_path: Path) -> None:
    with mute_database() as (role, database):
        url = of_role(fresh_url(), role, database)
        with (
            node(tmp_path, "a", url) as a,
            node(tmp_path, "b", url) as b,
            psycopg.connect(shared_cluster().url, dbname=database, autocommit=True) as ear,
        ):
            ear.execute(f'LISTEN "semel_{schema_of(url)}"')
            create(a)
            for number in range(2):
                with long_poll(b) as answer:
                    append(a, number).raise_for_status()
                    assert answer.result().json() == [number]
            assert list(ear.notifies(timeout=0)) == []


def cut_listener(name: str) -> int:
    """End the session in which a node listens; how many there were."""
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND query = %s"
    return len(shared_cluster().execute(query, [name, NUMBERS]))


def test_a_reader_is_woken_though_its_node_was_not_listening(tmp_path: Path) -> None:
    url = fresh_url()
    with node(tmp_path, "a", url) as a, node(tmp_path, "deaf", url) as b:
        create(a)
        for number in range(3):
            eventually(lambda: is_ready(b), "the node is ready")
            with long_poll(b) as answer:
                eventually(lambda: cut_listener("deaf") == 1, "the listener has been cut off")
                append(a, number).raise_for_status()
                assert answer.result().json() == [number]


# -- Outages ----------------------------------------------------------------------------------------------------------

OUTAGES: dict[str, tuple[Callable[[Cluster], None], Callable[[Cluster], None]]] = {
    "stopped": (Cluster.stop, Cluster.start),
    "killed": (Cluster.kill, Cluster.start),
    "hanging": (Cluster.pause, Cluster.resume),
}


AWAY = (503, "store away")
READY = (200, None)


def readiness(server: RunningServer) -> tuple[int, Any]:
    answer = httpx.get(server.url + "/readyz", timeout=PATIENCE_SECONDS)
    return answer.status_code, answer.json().get("reason")


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize("kind", OUTAGES)
def test_a_node_outlives_an_outage_and_says_what_it_cannot_do_meanwhile(kind: str, tmp_path: Path) -> None:
    begin, end = OUTAGES[kind]

    def outlive(patience_seconds: float) -> None:
        with Cluster() as cluster, hasty_node(tmp_path, cluster, patience_seconds) as server:
            pid = server.pid
            create(server)
            until_stored(lambda: append(server, "before", key="1"))
            begin(cluster)
            check_outage(server)
            end(cluster)
            eventually(lambda: readiness(server) == READY, "the node is ready again")
            with unless_slow(patience_seconds * LOCK_SHARE):
                assert "Idempotency-Replayed" not in append(server, "during", key="2").raise_for_status().headers
                assert append(server, "before", key="1").headers["Idempotency-Replayed"] == "true"
                assert messages(server) == ["before", "during"]
            assert server.pid == pid
            assert server.stop() == 0

    in_time(outlive, 1.0)


@contextmanager
def hasty_node(folder: Path, cluster: Cluster, patience_seconds: float, **settings: str) -> Iterator[RunningServer]:
    """A node that waits for so long for its database, also when it starts."""
    url = f"{cluster.url}?patience_ms={round(patience_seconds * 1_000)}"
    server = node(folder / f"{patience_seconds}", "a", url, **settings)
    with unless_slow(patience_seconds * LOCK_SHARE):
        server.start()
    with ExitStack() as running:
        running.push(server)
        yield server


def check_outage(server: RunningServer) -> None:
    assert problem(append(server, "during", key="2")) == (503, "NOT_STORED")
    assert problem(httpx.get(server.url + STREAM, timeout=PATIENCE_SECONDS)) == (503, "UNAVAILABLE")
    assert problem(httpx.get(server.url + "/v1/streams", timeout=PATIENCE_SECONDS)) == (503, "UNAVAILABLE")
    eventually(lambda: readiness(server) == AWAY, "the node is not ready")
    assert httpx.get(server.url + "/livez").status_code == 200


def test_a_node_outlives_an_outage_that_comes_while_receipts_are_being_forgotten(tmp_path: Path) -> None:
    turning = {"SWEEP_INTERVAL_MS": "50", "STREAMS_IDEMPOTENCY_TTL_MS": "200"}

    def outlive(patience_seconds: float) -> None:
        with Cluster() as cluster, hasty_node(tmp_path, cluster, patience_seconds, **turning) as server:
            create(server)
            with unless_slow(patience_seconds * LOCK_SHARE):
                append(server, "before", key="1").raise_for_status()
            eventually(lambda: len(cluster.execute("SELECT 1 FROM semel.semel_generation")) == 1, "one has turned")
            cluster.stop()
            eventually(lambda: readiness(server) == AWAY, "the node is not ready")
            cluster.start()
            eventually(lambda: readiness(server) == READY, "the node is ready again")
            with unless_slow(patience_seconds * LOCK_SHARE):
                append(server, "after", key="2").raise_for_status()
                assert messages(server) == ["before", "after"]

    in_time(outlive, 1.0)


def test_a_reader_outlives_a_short_outage(tmp_path: Path) -> None:
    with Cluster() as cluster:
        url = f"{cluster.url}?patience_ms=60000"
        with node(tmp_path, "a", url) as a, node(tmp_path, "b", url) as b:
            create(a)
            with httpx.stream("GET", f"{b.url}{STREAM}?live=sse&offset=-1", timeout=PATIENCE_SECONDS) as live:
                seen = data_of(live)
                append(a, "before").raise_for_status()
                assert next(seen) == ["before"]
                cluster.kill()
                cluster.start()
                append(a, "after").raise_for_status()
                assert next(seen) == ["after"]


@pytest.mark.parametrize("kind", OUTAGES)
def test_a_node_stops_in_order_while_the_database_is_away(kind: str, tmp_path: Path) -> None:
    begin, end = OUTAGES[kind]

    def stop_meanwhile(patience_seconds: float) -> None:
        with Cluster() as cluster, hasty_node(tmp_path, cluster, patience_seconds) as server:
            create(server, Stream_TTL="3600")
            until_stored(lambda: append(server, "before", key="1"))
            begin(cluster)
            assert server.stop() == 0
            end(cluster)
            with unless_slow(patience_seconds * LOCK_SHARE):
                server.start()
                assert messages(server) == ["before"]

    in_time(stop_meanwhile, 1.0)

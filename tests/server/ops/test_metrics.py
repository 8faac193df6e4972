"""Metrics of a running server: durations, commits, receipts, connections, sizes, and doubles that were prevented."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import httpx
import pytest
from websockets.sync.client import connect

import semel
from tests.events.wire import Peer
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually

JSON = {"Content-Type": "application/json"}
SECONDS = "semel_server_request_seconds_count{{surface={},wire={}}}"
DOUBLES = "semel_doubles_prevented_total{{surface={}}}"


class Site:
    """A server and what it tells."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.http = httpx.Client(base_url=server.url, timeout=60)

    def figures(self) -> dict[str, float]:
        """All metrics, by name and labels."""
        told: dict[str, float] = self.http.get("/metrics").json()
        return told

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """One request with a JSON body; on a connection that was used before, its head may be known."""
        answer = self.http.post(path, json=body, headers={name.replace("_", "-"): one for name, one in headers.items()})
        assert answer.status_code < 300, answer.text
        return answer


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with RunningServer(tmp_path_factory.mktemp("metrics") / "data", grpc=True) as server:
        found = Site(server)
        with found.http:
            yield found


def vault_of(site: Site) -> str:
    org = site.post("/ledger/v1/orgs", {"name": "o"}).json()["slug"]["slug"]
    vault = site.post(f"/ledger/v1/orgs/{org}/vaults", {}).json()["vault"]["slug"]
    return f"/ledger/v1/orgs/{org}/vaults/{vault}"


def grown(site: Site, name: str, before: dict[str, float]) -> float:
    return site.figures().get(name, 0) - before.get(name, 0)


CALLS = 24
"""Requests of one kind: a connection knows their head after about a dozen."""


def test_every_request_is_timed_also_those_with_a_known_head(site: Site) -> None:
    site.http.put("/v1/stream/timed", headers=JSON).raise_for_status()
    vault = vault_of(site)
    operation = {"setEntity": {"key": "k", "value": "AA=="}}
    calls: dict[str, Callable[..., object]] = {
        "streams": lambda number: site.post("/v1/stream/timed", {"n": number}, Idempotency_Key=f"t-{number}"),
        "jobs": lambda number: site.post("/v1/jobs", {"kind": "k", "params": {}, "idempotency_key": f"t-{number}"}),
        "ledger": lambda number: site.post(
            f"{vault}/writes", {"clientId": "c", "sequence": str(number + 1), "operations": [operation]}
        ),
        "events": lambda number: site.post(
            "/v1/events", {"events": [{"id": f"t-{number}", "partitions": ["p"], "event": {"type": "t"}}]}
        ),
    }
    for surface, call in calls.items():
        name = SECONDS.format(surface, "http")
        before = site.figures()
        for number in range(CALLS):
            call(number)
        assert grown(site, name, before) == CALLS, surface
        assert 0 < site.figures()[name.replace("_count", "_sum")] < 60


def test_messages_and_calls_are_timed_by_their_wire(site: Site) -> None:
    before = site.figures()
    with Peer(site.server.port) as peer:
        peer.connect()
        event = {"id": "on-a-socket", "partitions": ["p"], "event": {"type": "t"}}
        assert peer.ask("submit_events", {"events": [event]})["type"] == "submit_events_result"
    assert grown(site, SECONDS.format("events", "websocket"), before) == 2
    with grpc.insecure_channel(f"{HOST}:{site.server.grpc_port}") as channel:
        call: Any = channel.unary_unary("/ledger.v1.HealthService/Check")
        call(b"", timeout=60, wait_for_ready=True)
    assert grown(site, SECONDS.format("ledger", "grpc"), before) == 1


def test_a_poll_that_waits_on_purpose_is_timed_apart(site: Site) -> None:
    before = site.figures()
    site.post("/v1/jobs/claim", {"worker_id": "w", "queues": ["empty"], "wait_ms": 50})
    assert grown(site, SECONDS.format("jobs", "live"), before) == 1
    assert grown(site, SECONDS.format("jobs", "http"), before) == 0


def test_commits_are_timed_as_a_part_of_their_batches(site: Site) -> None:
    site.http.put("/v1/stream/committed", headers=JSON)
    told = site.figures()
    assert 0 < told["semel_engine_commit_seconds_count"] <= told["semel_engine_batch_seconds_count"]
    assert told["semel_engine_commit_seconds_count"] >= told["semel_engine_commits_total{kind=durable}"]
    assert 0 < told["semel_engine_commit_seconds_sum"] < told["semel_engine_batch_seconds_sum"]


def test_one_counter_has_the_doubles_of_every_surface(site: Site) -> None:
    site.http.put("/v1/stream/doubled", headers=JSON)
    vault = vault_of(site)
    event = {"id": "doubled", "partitions": ["p"], "event": {"type": "t"}}
    write = {"clientId": "d", "sequence": "1", "operations": [{"setEntity": {"key": "k", "value": "AA=="}}]}
    calls: dict[str, Callable[..., object]] = {
        "streams": lambda: site.post("/v1/stream/doubled", 1, Idempotency_Key="k"),
        "jobs": lambda: site.post("/v1/jobs", {"kind": "k", "params": {}, "idempotency_key": "doubled"}),
        "events": lambda: site.post("/v1/events", {"events": [event]}),
        "ledger": lambda: site.post(f"{vault}/writes", write),
    }
    for surface, call in calls.items():
        call()
        before = site.figures()
        call()
        call()
        assert grown(site, DOUBLES.format(surface), before) == 2, surface
    assert DOUBLES.format("deltas") in site.figures()


def test_connections_are_counted_by_kind(site: Site) -> None:
    site.http.put("/v1/stream/followed", headers=JSON)

    def are(live: int, websocket: int, grpc_calls: int) -> bool:
        told = site.figures()
        kinds = [told[f"semel_server_connections{{kind={kind}}}"] for kind in ("live", "websocket", "grpc")]
        assert told["semel_server_connections{kind=http}"] >= 1  # this one
        return kinds == [live, websocket, grpc_calls]

    eventually(lambda: are(0, 0, 0), "no connection is left of other tests")
    url = f"{site.server.url}/v1/stream/followed?offset=now&live=sse"
    with (
        httpx.stream("GET", url, timeout=60) as streamed,
        connect(f"ws://{HOST}:{site.server.port}/v1/events", open_timeout=60, close_timeout=60, proxy=None),
        grpc.insecure_channel(f"{HOST}:{site.server.grpc_port}") as channel,
    ):
        assert streamed.status_code == 200
        grpc.channel_ready_future(channel).result(timeout=60)
        eventually(lambda: are(1, 1, 1), "one connection of each kind")


def test_sizes_and_receipts_are_those_of_the_store(site: Site) -> None:
    site.http.put("/v1/stream/kept", headers=JSON)
    before = site.figures()
    for number in range(3):
        site.post("/v1/stream/kept", 1, Idempotency_Key=f"k-{number}")
    told = site.figures()
    name = "semel_store_receipts{surface=streams}"
    assert told[name] - before[name] == 3
    data = site.server.data
    assert told["semel_store_database_bytes"] == (data / "semel.db").stat().st_size
    assert told["semel_store_log_bytes"] > 0
    assert told["semel_store_free_disk_bytes"] > 0
    assert not [name for name in told if "replica" in name]  # SQLite has none


def test_nothing_waits_and_the_sweeper_keeps_up(site: Site) -> None:
    assert site.figures()["semel_engine_oldest_write_seconds"] == 0
    eventually(lambda: "semel_store_sweep_lag_seconds" in site.figures(), "the sweeper has begun")
    assert 0 <= site.figures()["semel_store_sweep_lag_seconds"] < 60


def test_the_build_and_the_process_are_told(site: Site) -> None:
    told = site.figures()
    labels = f"python={platform.python_version()},store=sqlite,version={semel.__version__}"
    assert told[f"semel_build_info{{{labels}}}"] == 1
    assert told["process_resident_memory_bytes"] > 1_000_000


NAME = re.compile(r"(semel|process)_[a-z0-9_]+")
LABELS = {
    *("surface", "method", "status", "wire", "kind", "outcome", "reason", "place", "source", "result", "type", "code"),
    *("version", "python", "store", "le", "quota", "namespace"),
}
"""Labels whose values are closed sets: none is chosen by a client."""


def test_names_and_labels_are_of_closed_sets(site: Site) -> None:
    text = site.http.get("/metrics", headers={"Accept": "text/plain"}).text
    samples = [line.partition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(samples) > 100
    assert [one for one in samples if not NAME.match(one)] == []
    assert {label for one in samples for label in re.findall(r"[{,](\w+)=", one)} <= LABELS


def test_a_name_that_a_client_chose_is_in_no_metric(site: Site) -> None:
    name = "a-name-of-a-client"
    site.http.put(f"/v1/stream/{name}", headers=JSON)
    site.http.request("GET", f"/{name}")
    site.http.request(name.upper(), f"/v1/stream/{name}")
    assert name not in json.dumps(site.figures()).lower()

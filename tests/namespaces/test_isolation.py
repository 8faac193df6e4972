"""Namespaces of one process share no row: the same names, keys and positions in two of them never meet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from websockets.exceptions import InvalidStatus

from semel.client import Client
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.deltas.binary.caller import joined
from tests.deltas.vectors import CLIENT, columns, delta
from tests.events.wire import Peer, fresh, item
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import HOST, RunningServer

NAMES = ("red", "blue")
BASES = ("", "/ns/red", "/ns/blue")
CREATE = "/ledger.v1.AdminService/CreateOrganization"


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    env = {"SEMEL_NAMESPACES": ",".join(NAMES)}
    if request.param == "postgres":
        env["SEMEL_STORE"] = fresh_url()
    with RunningServer(tmp_path_factory.mktemp("isolated") / "data", env=env, grpc=True) as running:
        yield running


def test_a_stream_of_one_namespace_is_unknown_in_another(server: RunningServer) -> None:
    name = fresh("stream")
    made = httpx.put(f"{server.url}/ns/red/v1/stream/{name}", headers={"Content-Type": "text/plain"})
    assert made.status_code == 201
    assert made.headers["Location"].endswith(f"/ns/red/v1/stream/{name}")
    assert httpx.get(made.headers["Location"] + "?offset=-1").status_code == 200
    for base in ("", "/ns/blue"):
        assert httpx.get(f"{server.url}{base}/v1/stream/{name}?offset=-1").status_code == 404
        assert httpx.get(f"{server.url}{base}/v1/streams").text.count(name) == 0


def test_one_key_is_a_first_try_in_each_namespace(server: RunningServer) -> None:
    name = fresh("stream")
    with httpx.Client() as client:  # one connection: the heads of all three have a known shape after the first
        for turn in range(3):
            for base in BASES:
                url = f"{server.url}{base}/v1/stream/{name}"
                if not turn:
                    assert client.put(url, headers={"Content-Type": "text/plain"}).status_code == 201
                head = {"Content-Type": "text/plain", "Idempotency-Key": f"key-{turn}"}
                first = client.post(url, content=f"{turn}{base}|", headers=head)
                again = client.post(url, content=f"{turn}{base}|", headers=head)
                assert first.status_code == again.status_code == 204
                assert "Idempotency-Replayed" not in first.headers
                assert again.headers["Idempotency-Replayed"] == "true"
                assert again.headers["Stream-Next-Offset"] == first.headers["Stream-Next-Offset"]
    for base in BASES:
        content = httpx.get(f"{server.url}{base}/v1/stream/{name}?offset=-1").text
        assert content == "".join(f"{turn}{base}|" for turn in range(3))


def test_an_event_id_counts_in_its_namespace_alone(server: RunningServer) -> None:
    partition = fresh("p")
    sent = {"events": [item([partition], id=fresh("id"))]}
    for base in BASES:
        url = f"{server.url}{base}/v1/events"
        first, again = (httpx.post(url, json=sent) for _ in range(2))
        assert "Events-Replayed" not in first.headers
        assert (again.json(), again.headers["Events-Replayed"]) == (first.json(), "0")
    more = httpx.post(f"{server.url}/ns/red/v1/events", json={"events": [item([partition])]}).json()["results"][0]
    assert httpx.get(f"{server.url}/ns/red/v1/events/id/{more['id']}").status_code == 200
    assert httpx.get(f"{server.url}/ns/blue/v1/events/id/{more['id']}").status_code == 404
    pages = [httpx.get(f"{server.url}{base}/v1/events?partition={partition}").json() for base in BASES]
    assert [len(page["events"]) for page in pages] == [1, 2, 1]


def test_a_live_reader_hears_its_own_namespace(server: RunningServer) -> None:
    partition = fresh("p")
    with Peer(server.port, base="/ns/red") as red, Peer(server.port, base="/ns/blue") as blue:
        for peer in (red, blue):
            peer.connect()
            peer.subscribe(partition)
        sent = item([partition])
        assert httpx.post(f"{server.url}/ns/red/v1/events", json={"events": [sent]}).status_code == 200
        assert red.broadcasts(1)[0]["id"] == sent["id"]
        blue.expect_nothing()


def test_jobs_are_claimed_and_completed_in_their_namespace(server: RunningServer) -> None:
    queue = fresh("queue")
    made = {}
    for base in BASES:
        with Client(server.url + base) as client:
            job = client.jobs.submit("k", {"base": base}, queue=queue, key="one-key")
            again = client.jobs.submit("k", {"base": base}, queue=queue, key="one-key")
            assert (job.dedup, again.dedup, again.job_id) == (False, True, job.job_id)
            made[base] = job.job_id
    assert len(set(made.values())) == 3
    for base, job_id in made.items():
        url = f"{server.url}{base}/v1/jobs"
        others = [httpx.get(f"{server.url}{other}/v1/jobs/{job_id}").status_code for other in BASES if other != base]
        assert others == [404, 404]
        with httpx.Client() as worker:
            for jobs in ([job_id], [], []):  # from the second on, the head of the claim is known
                claimed = worker.post(f"{url}/claim", json={"queues": [queue], "worker_id": "w"}).json()["jobs"]
                assert [one["job_id"] for one in claimed] == jobs
                for one in claimed:
                    assert one["params"] == {"base": base}
                    report = {"lease_token": one["lease_token"], "result": 1}
                    assert worker.post(f"{url}/{job_id}/complete", json=report).status_code == 200
        assert httpx.get(f"{url}/{job_id}").json()["state"] == "completed"


def test_completions_of_a_namespace_are_known_by_their_heads(server: RunningServer) -> None:
    queue, url = fresh("queue"), f"{server.url}/ns/red/v1/jobs"
    with httpx.Client() as worker:
        for number in range(4):
            worker.post(url, json={"kind": "k", "params": {"number": number}, "queue": queue})
        for _ in range(4):
            [one] = worker.post(f"{url}/claim", json={"queues": [queue], "worker_id": "w"}).json()["jobs"]
            report = {"lease_token": one["lease_token"], "result": 1}
            done = worker.post(f"{url}/{one['job_id']}/complete", json=report)
            again = worker.post(f"{url}/{one['job_id']}/complete", json=report)
            assert (done.json()["dedup"], again.json()["dedup"]) == (False, True)
            elsewhere = worker.post(f"{server.url}/v1/jobs/{one['job_id']}/complete", json=report)
            assert elsewhere.status_code == 404


def test_a_gateway_of_deltas_is_that_of_its_namespace(server: RunningServer) -> None:
    gateway, one = fresh("gw"), delta("INSERT", columns(name="Ada"))
    body = {"clientId": CLIENT, "deltas": [one]}
    for base in ("/ns/red", "/ns/red", "/ns/blue"):
        assert httpx.post(f"{server.url}{base}/v1/sync/{gateway}/push", json=body).json()["accepted"] == 1
    rows = [
        len(httpx.get(f"{server.url}{base}/v1/sync/{gateway}/pull?since=0&clientId=reader").json()["deltas"])
        for base in BASES
    ]
    assert rows == [0, 1, 1]


def test_a_websocket_of_deltas_is_that_of_its_namespace(server: RunningServer) -> None:
    gateway, body = fresh("gw"), {"clientId": CLIENT, "deltas": [delta("INSERT", columns(name="Ada"))]}
    with joined(server.port, gateway, "red", version="/ns/red/v1") as red, joined(server.port, gateway, "root") as root:
        assert red.pull().ids == []
        assert httpx.post(f"{server.url}/ns/red/v1/sync/{gateway}/push", json=body).status_code == 200
        assert len(red.broadcast().ids) == 1
        assert root.pull().ids == []
    with pytest.raises(InvalidStatus, match="404"), joined(server.port, gateway, "x", version="/ns/none/v1"):
        pass


def test_the_ledger_over_grpc_is_that_of_the_metadata(server: RunningServer) -> None:
    name = fresh("org")
    made = {}
    with grpc.insecure_channel(f"{HOST}:{server.grpc_port}") as channel:
        create: Any = channel.unary_unary(
            CREATE, pb.CreateOrganizationRequest.SerializeToString, pb.CreateOrganizationResponse.FromString
        )
        for namespace in ("default", *NAMES):
            metadata = [("semel-namespace", namespace)]
            made[namespace] = create(
                pb.CreateOrganizationRequest(name=name), metadata=metadata, timeout=60, wait_for_ready=True
            )
        with pytest.raises(grpc.RpcError) as refused:
            create(pb.CreateOrganizationRequest(name=name), metadata=[("semel-namespace", "none")], timeout=60)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    for base in BASES:
        orgs = httpx.get(f"{server.url}{base}/ledger/v1/orgs").json()["organizations"]
        assert sum(org["name"] == name for org in orgs) == 1


@pytest.mark.parametrize("path", ["/ns/none/v1/streams", "/ns/", "/ns", "/ns/red", "/ns/red/nothing", "/ns/RED/livez"])
def test_a_path_of_no_namespace_is_not_found(server: RunningServer, path: str) -> None:
    answer = httpx.get(server.url + path)
    assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
    assert answer.headers["X-Request-Id"]


def test_the_default_namespace_has_no_other_path(server: RunningServer) -> None:
    assert httpx.get(server.url + "/ns/default/livez").status_code == 404
    assert httpx.get(server.url + "/livez").status_code == 200


def test_metrics_name_the_namespace(server: RunningServer) -> None:
    text = httpx.get(server.url + "/metrics", headers={"Accept": "text/plain"}).text
    for name in ("default", *NAMES):
        assert f'semel_engine_queue_writes{{namespace="{name}"}} ' in text
    assert text.count("# TYPE semel_engine_queue_writes gauge") == 1
    assert "\nsemel_http_connections 1" in text
    own = httpx.get(server.url + "/ns/red/metrics", headers={"Accept": "text/plain"}).text
    assert "namespace=" not in own


def test_each_namespace_counts_its_own_answers(server: RunningServer) -> None:
    def count(base: str) -> float:
        key = "semel_http_requests_total{method=GET,status=404,surface=streams}"
        return float(httpx.get(f"{server.url}{base}/metrics").json().get(key, 0))

    before = count("/ns/red"), count("/ns/blue")
    assert httpx.get(f"{server.url}/ns/red/v1/stream/absent?offset=-1").status_code == 404
    assert (count("/ns/red") - before[0], count("/ns/blue") - before[1]) == (1, 0)

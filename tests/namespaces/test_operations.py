"""Operating a server with several namespaces: its log, access log, traces and banner, the doctor and the diagnosis."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from semel.cli.serve import SHOWN_NAMES, banner
from semel.kernel.namespace import url_within
from semel.server.settings_loader import make_settings
from semel.store.open import namespaces_at
from tests.cli.command import Semel
from tests.cli.test_namespaces import fill
from tests.events.wire import Peer, item
from tests.harness.collector import Collector, ReceivedSpan
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually

TRACE_ID = "0123456789abcdef0123456789abcdef"
SAMPLED = {"traceparent": f"00-{TRACE_ID}-0123456789abcdef-01"}
JOB = {"kind": "k", "params": {}, "max_attempts": 1}
Facts = dict[str, Any]


class NamespaceSite:
    """A traced server with an access log, two namespaces besides the default one, and decisions that can raise."""

    def __init__(self, server: RunningServer, collector: Collector, breaks: Path) -> None:
        self.server = server
        self.collector = collector
        self.breaks = breaks

    def lines(self) -> list[Facts]:
        """What it has logged."""
        texts = self.server.output.read_text().splitlines()
        return [json.loads(text) for text in texts if text.startswith("{")]

    def checks(self) -> list[Facts]:
        """What the doctor says."""
        run = Semel(self.server.url).here("doctor", "--data", str(self.server.data), "--json")
        found: list[Facts] = json.loads(run.out)["checks"]
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceSite]:
    folder = tmp_path_factory.mktemp("operated")
    with Collector() as collector:
        env = {
            "SEMEL_NAMESPACES": "red,blue",
            "SEMEL_ACCESS_LOG": "true",
            "SEMEL_DECISION_FAULT_FILE": str(folder / "breaks"),
            **collector.variables(),
        }
        with RunningServer(folder / "data", env=env, grpc=True) as server:
            yield NamespaceSite(server, collector, folder / "breaks")


@pytest.mark.parametrize(("base", "named"), [("", None), ("/ns/red", "red")])
def test_the_line_of_a_fault_names_the_namespace(site: NamespaceSite, base: str, named: str | None) -> None:
    name = f"fault{base}"
    site.breaks.touch()
    try:
        answer = httpx.post(f"{site.server.url}{base}/v1/jobs", json=JOB, headers={"X-Request-Id": name})
        assert answer.status_code == 500
    finally:
        site.breaks.unlink()

    def told() -> list[Facts]:
        return [line for line in site.lines() if line.get("request_id") == name]

    eventually(lambda: bool(told()), "the fault is logged")
    assert {line.get("namespace") for line in told()} == {named}


def test_the_lines_of_background_tasks_name_the_namespace(site: NamespaceSite) -> None:
    """Every namespace opens its ledger and sweeps by itself; in each, decisions raise meanwhile."""
    opened = [line for line in site.lines() if line["message"] == "ledger open"]
    assert [line.get("namespace") for line in opened] == [None, "red", "blue"]


def test_lines_of_requests_messages_and_calls_name_the_namespace(site: NamespaceSite) -> None:
    httpx.get(f"{site.server.url}/ns/red/livez")
    with Peer(site.server.port, base="/ns/red") as peer:
        peer.connect()
    with grpc.insecure_channel(f"{HOST}:{site.server.grpc_port}") as channel:
        made: Any = channel.unary_unary("/ledger.v1.HealthService/Check")
        made(b"", timeout=60, wait_for_ready=True, metadata=[("semel-namespace", "red")])

    def told() -> list[tuple[str, str]]:
        file = site.server.data / "logs" / "access.jsonl"  # made by the first line
        lines = map(json.loads, file.read_text().splitlines() if file.exists() else ())
        return [(line["wire"], line["method"]) for line in lines if line.get("namespace") == "red"]

    wanted = {("http", "GET"), ("websocket", "MESSAGE"), ("grpc", "POST")}
    eventually(lambda: wanted <= set(told()), "the access log has them")


def test_spans_name_the_namespace(site: NamespaceSite) -> None:
    httpx.post(f"{site.server.url}/ns/red/v1/jobs", json=JOB, headers=SAMPLED).raise_for_status()
    with Peer(site.server.port, base="/ns/red", additional_headers=SAMPLED) as peer:
        peer.connect()
        peer.commit(item(["p"]))
    with grpc.insecure_channel(f"{HOST}:{site.server.grpc_port}") as channel:
        made: Any = channel.unary_unary("/ledger.v1.HealthService/Check")
        metadata = [("semel-namespace", "red"), *SAMPLED.items()]
        made(b"", timeout=60, wait_for_ready=True, metadata=metadata)
    wanted = {"POST /v1/jobs", "semel events message", "semel commit", "ledger.v1.HealthService/Check"}

    def found(spans: list[ReceivedSpan]) -> list[ReceivedSpan]:
        return [span for span in spans if span.trace_id == TRACE_ID]

    spans = found(site.collector.wait_for(lambda spans: {span.name for span in found(spans)} >= wanted))
    assert {span.attributes.get("semel.namespace") for span in spans} == {"red"}


def test_spans_of_the_default_namespace_name_none(site: NamespaceSite) -> None:
    other = {"traceparent": f"00-{TRACE_ID[::-1]}-0123456789abcdef-01"}
    httpx.post(f"{site.server.url}/v1/jobs", json=JOB, headers=other).raise_for_status()

    def found(spans: list[ReceivedSpan]) -> list[ReceivedSpan]:
        return [span for span in spans if span.trace_id == TRACE_ID[::-1]]

    spans = found(site.collector.wait_for(lambda spans: len(found(spans)) == 2))
    assert not any("semel.namespace" in span.attributes for span in spans)


def test_the_doctor_says_for_each_namespace_what_it_says_for_one(site: NamespaceSite) -> None:
    with httpx.Client(base_url=f"{site.server.url}/ns/red") as http:
        for job in http.post("/v1/jobs/claim", json={"worker_id": "w", "max": 9}).json()["jobs"]:
            http.post(f"/v1/jobs/{job['job_id']}/complete", json={"lease_token": job["lease_token"], "result": {}})
        http.post("/v1/jobs", json=JOB).raise_for_status()
        (job,) = http.post("/v1/jobs/claim", json={"worker_id": "w"}).json()["jobs"]
        report = {"lease_token": job["lease_token"], "error": {"code": "e", "message": "red has no paper"}}
        http.post(f"/v1/jobs/{job['job_id']}/fail", json=report).raise_for_status()
    checks = site.checks()
    said = {name: {one["name"] for one in checks if one.get("namespace") == name} for name in (None, "red", "blue")}
    each = {"readiness", "credential", "streams", "events", "jobs", "ledger", "deltas"}
    assert said["red"] == said["blue"] == each < (said[None] or set())
    (dead,) = [one for one in checks if not one["ok"] and "dead letter" in one["found"]]
    assert (dead["namespace"], dead["name"]) == ("red", "jobs")
    assert "red has no paper" in dead["found"]
    assert "[red] 1 dead letter" in Semel(site.server.url).here("doctor", "--data", str(site.server.data)).out


def test_a_bundle_of_a_namespace(site: NamespaceSite, tmp_path: Path) -> None:
    semel = Semel(site.server.url)
    httpx.post(f"{site.server.url}/ns/blue/v1/jobs", json=JOB | {"queue": "of-blue"}).raise_for_status()
    parts = bundle(semel.here("diagnose", "--namespace", "blue", "--output", str(tmp_path), "--json").facts["file"])
    assert json.loads(parts["about.json"])["namespace"] == "blue"
    assert b"of-blue" in parts["jobs.json"]
    (tmp_path / "default").mkdir()
    parts = bundle(semel.here("diagnose", "--output", str(tmp_path / "default"), "--json").facts["file"])
    assert json.loads(parts["about.json"])["namespace"] == "default"
    assert b"of-blue" not in parts["jobs.json"]
    unknown = semel.here("diagnose", "--namespace", "green", "--output", str(tmp_path))
    assert unknown.code == 1
    bad = semel.here("diagnose", "--namespace", "Green", "--output", str(tmp_path))
    assert "cannot be the name of a namespace" in bad.err


def test_a_bundle_of_a_namespace_without_a_server(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with RunningServer(data, env={"SEMEL_NAMESPACES": "red"}) as server:
        httpx.post(f"{server.url}/ns/red/v1/jobs", json=JOB | {"queue": "of-red"}).raise_for_status()
    args = ("diagnose", "--data", str(data), "--namespace", "red", "--output", str(tmp_path), "--json")
    parts = bundle(Semel("http://127.0.0.1:1").here(*args).facts["file"])
    assert json.loads(parts["about.json"])["namespace"] == "red"
    assert b"of-red" in parts["jobs.json"]


def bundle(path: str) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(Path(path).read_bytes())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_namespaces_of_a_store_are_found(tmp_path: Path, store: str) -> None:
    url = f"sqlite:{tmp_path}" if store == "sqlite" else fresh_url()
    assert namespaces_at(url) == []
    for name in ("default", "red", "blue"):
        fill(url_within(url, name), 1)
    (tmp_path / "ns_nothing").mkdir(exist_ok=True)
    assert namespaces_at(url) == ["blue", "red"]


def test_the_banner_names_the_namespaces_and_their_paths() -> None:
    shown = banner(make_settings(namespaces="red,blue"), 8788).splitlines()
    assert shown[1] == "Namespaces: default at /, red at /ns/red/, blue at /ns/blue/."
    many = banner(make_settings(namespaces=",".join(f"n{number}" for number in range(SHOWN_NAMES + 2))), 8788)
    assert "n7 at /ns/n7/ and 2 more." in many
    assert "Namespaces" not in banner(make_settings(), 8788)

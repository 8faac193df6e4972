"""No credential, key or content is ever found in a log, an access line, a metric, the audit log or a diagnosis.

Every way in which a credential can travel carries canaries of its own, one that is accepted and one that is not, to a
real server for each log level and format. Then everything that the server wrote is searched for each of them: whole,
encoded, and in halves.
"""

from __future__ import annotations

import io
import json
import secrets
import socket
import zipfile
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import grpc
import httpx
import pytest
from websockets.exceptions import InvalidHandshake
from websockets.sync.client import connect

from tests.cli.command import Semel
from tests.deltas.rig import signed
from tests.events.wire import Peer, fresh
from tests.harness.server import HOST, RunningServer
from tests.harness.tokens import token_file
from tests.server.auth.signing import good_token, write_keys

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
FOR_EVER = 4_102_444_800
GATEWAY = "gw"
SECRET = "a secret of at least thirty-two bytes"
ADMIN = "the-token-of-the-one-who-looks"


class Site(NamedTuple):
    """A server under test."""

    server: RunningServer

    def http(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> int:
        """Ask, and return the status."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.request(method, self.server.url + path, json=body, headers=named).status_code

    def grpc(self, path: str, *metadata: tuple[str, str | bytes]) -> bool:
        """Whether a call got past its credential."""
        with grpc.insecure_channel(f"{HOST}:{self.server.grpc_port}") as channel:
            call: Any = channel.unary_unary(path)
            try:
                call(b"", metadata=metadata, timeout=60, wait_for_ready=True)
            except grpc.RpcError as error:
                return error.code() is not grpc.StatusCode.UNAUTHENTICATED
        return True

    def socket(self, path: str, **headers: str) -> bool:
        """Whether a WebSocket was opened."""
        url = f"ws://{HOST}:{self.server.port}{path}"
        try:
            with connect(url, additional_headers=headers, open_timeout=60, close_timeout=60, proxy=None):
                return True
        except InvalidHandshake:
            return False

    def say(self, kind: str, payload: Mapping[str, Any], **headers: str) -> str:
        """The type of the answer to one message on the WebSocket of events."""
        with Peer(self.server.port, additional_headers=headers) as peer:
            return str(peer.ask(kind, payload)["type"])

    def raw(self, port: int, content: str) -> None:
        """Bytes that are no request, and all that is said to them."""
        with socket.create_connection((HOST, port), timeout=60) as line, suppress(OSError):
            line.sendall(content.encode())
            line.shutdown(socket.SHUT_WR)
            while line.recv(65_536):
                pass


def bearer(token: str) -> str:
    return f"Bearer {token}"


STREAM, JOBS, LEDGER, EVENTS = "/v1/stream/s", "/v1/jobs", "/ledger/v1/orgs", "/v1/events"
PULL, SOCKET = f"/v1/sync/{GATEWAY}/pull?since=0&clientId=c", f"/v1/sync/{GATEWAY}/ws"
TIP, WRITE = "/ledger.v1.ReadService/GetTip", "/ledger.v1.WriteService/Write"
JOB = {"kind": "k", "params": {}}

Way = Callable[[Site, str], object]
"""Sends a token; what comes back tells the accepted one from the other."""

TOLD_APART: dict[str, Way] = {
    "streams, Authorization": lambda site, token: site.http(STREAM, "PUT", authorization=bearer(token)),
    "streams, X-Semel-Token": lambda site, token: site.http(STREAM, x_semel_token=token),
    "streams, X-Sheratan-Token": lambda site, token: site.http(STREAM, x_sheratan_token=token),
    "list of streams": lambda site, token: site.http("/v1/streams", authorization=bearer(token)),
    "metrics": lambda site, token: site.http("/metrics", authorization=bearer(token)),
    "diagnosis": lambda site, token: site.http("/v1/diagnose", authorization=bearer(token)),
    "events, Authorization": lambda site, token: site.http(f"{EVENTS}?partitions=p", authorization=bearer(token)),
    "events, X-Semel-Token": lambda site, token: site.http(EVENTS, "POST", {"events": []}, x_semel_token=token),
    "events, connect": lambda site, token: site.say("connect", {"client_id": "c", "token": token}),
    "jobs, Authorization": lambda site, token: site.http(JOBS, "POST", JOB, authorization=bearer(token)),
    "jobs, X-Sheratan-Token": lambda site, token: site.http(JOBS, x_sheratan_token=token),
    "mesh": lambda site, token: site.http("/mesh/submit_request", "POST", JOB, x_sheratan_token=token),
    "ledger, X-Api-Key": lambda site, token: site.http(LEDGER, "POST", {"name": fresh("o")}, x_api_key=token),
    "ledger, Authorization": lambda site, token: site.http(LEDGER, authorization=bearer(token)),
    "gRPC, authorization": lambda site, token: site.grpc(TIP, ("authorization", bearer(token))),
    "gRPC, x-api-key": lambda site, token: site.grpc(TIP, ("x-api-key", token)),
    "gRPC, x-semel-token": lambda site, token: site.grpc(WRITE, ("x-semel-token", token)),
    "gRPC, x-sheratan-token": lambda site, token: site.grpc(WRITE, ("x-sheratan-token", token)),
    "deltas, Authorization": lambda site, token: site.http(PULL, authorization=bearer(token)),
    "deltas, handshake": lambda site, token: site.socket(SOCKET, Authorization=bearer(token)),
    "deltas, query of the handshake": lambda site, token: site.socket(f"{SOCKET}?token={quote(token, safe='')}"),
}
JWTS: dict[str, Way] = {
    "JWT, streams": TOLD_APART["streams, Authorization"],
    "JWT, events, connect": TOLD_APART["events, connect"],
    "JWT, gRPC": TOLD_APART["gRPC, authorization"],
}
DELTA_JWTS: dict[str, Way] = {
    "JWT of deltas": TOLD_APART["deltas, Authorization"],
    "JWT of deltas, handshake": TOLD_APART["deltas, handshake"],
    "JWT of deltas, query of the handshake": TOLD_APART["deltas, query of the handshake"],
}


def query_of(token: str) -> str:
    return f"token={quote(token, safe='')}&access_token={token}"


ASTRAY: dict[str, Way] = {
    "query of streams": lambda site, token: site.http(f"{STREAM}?{query_of(token)}"),
    "query of events": lambda site, token: site.http(f"{EVENTS}?{query_of(token)}"),
    "query of jobs": lambda site, token: site.http(f"{JOBS}?{query_of(token)}"),
    "query of the ledger": lambda site, token: site.http(f"{LEDGER}?{query_of(token)}"),
    "query of deltas": lambda site, token: site.http(f"{PULL}&{query_of(token)}"),
    "query of metrics": lambda site, token: site.http(f"/metrics?{query_of(token)}"),
    "query of nothing": lambda site, token: site.http(f"/nothing?{query_of(token)}"),
    "query of the handshake of events": lambda site, token: site.socket(f"{EVENTS}?{query_of(token)}"),
    "header of the handshake of events": lambda site, token: site.say(
        "connect", {"client_id": "c"}, Authorization=bearer(token)
    ),
    "body of events": lambda site, token: site.http(EVENTS, "POST", {"token": token, "events": []}),
    "body of jobs": lambda site, token: site.http(JOBS, "POST", JOB | {"token": token}),
    "body of jobs, as a lease": lambda site, token: site.http(
        f"{JOBS}/job_{'0' * 32}/heartbeat", "POST", {"lease_token": token}, authorization=bearer(ADMIN)
    ),
    "body of the ledger": lambda site, token: site.http(LEDGER, "POST", {"token": token}),
    "body of deltas": lambda site, token: site.http(f"/v1/sync/{GATEWAY}/push", "POST", {"token": token}),
    "message in no order": lambda site, token: site.say("sync", {"token": token}),
    "gRPC, no such method": lambda site, token: site.grpc("/x/Y", ("authorization", bearer(token))),
    "gRPC, binary metadata": lambda site, token: site.grpc(TIP, ("x-api-key-bin", token.encode())),
    "HTTP that is broken": lambda site, token: site.raw(
        site.server.port, f"GET / HTTP/1.1\r\nAuthorization: Bearer {token}\r\nno header\r\n\r\n"
    ),
    "HTTP on the port of gRPC": lambda site, token: site.raw(
        site.server.grpc_port, f"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
    ),
    "key of an append": lambda site, token: site.http(
        STREAM, "POST", {}, authorization=bearer(ADMIN), idempotency_key=token
    ),
    "content of an append": lambda site, token: site.http(STREAM, "POST", {"a": token}, authorization=bearer(ADMIN)),
    "key of a job": lambda site, token: site.http(
        JOBS, "POST", JOB | {"idempotency_key": token}, authorization=bearer(ADMIN)
    ),
    "params of a job": lambda site, token: site.http(
        JOBS, "POST", {"kind": "k", "params": {"a": token}}, authorization=bearer(ADMIN)
    ),
    "id and content of an event": lambda site, token: site.http(
        EVENTS,
        "POST",
        {"events": [{"id": token, "partitions": ["p"], "event": {"type": "t", "a": token}}]},
        authorization=bearer(ADMIN),
    ),
    "two tokens": lambda site, token: site.http(STREAM, authorization=bearer(token), x_semel_token=token + "2"),
    "no bearer": lambda site, token: site.http(STREAM, authorization=f"Basic {token}"),
}
WAYS = TOLD_APART | JWTS | DELTA_JWTS | ASTRAY


def canary() -> str:
    """Characters that are written otherwise in a URL, and enough chance for each half to be found nowhere else."""
    return f"{secrets.token_hex(12)}/+={secrets.token_hex(12)}"


def pairs() -> dict[str, tuple[str, str]]:
    """For each way the token that is accepted and the one that is not; the ways astray accept neither."""
    found = {way: (canary(), canary()) for way in TOLD_APART | ASTRAY}
    for way in JWTS:
        claims = {"sub": canary(), "exp": FOR_EVER, "role": "admin", "client_id": "c"}
        good = good_token(claims).decode()
        found[way] = good, good_token(claims | {"sub": canary(), "exp": 1}).decode()
    for way in DELTA_JWTS:
        given = [{"sub": canary(), "gw": GATEWAY, "exp": FOR_EVER} for _ in range(2)]
        found[way] = signed(given[0], SECRET), signed(given[1], SECRET[::-1])
    return found


def traces(token: str) -> list[bytes]:
    """Everything that gives it away: itself, its halves, and how it is written elsewhere."""
    half = len(token) // 2
    texts = [token[:half], token[half:], quote(token, safe=""), json.dumps(token)[1:-1], token.encode().hex()]
    # The letters that stand for the bytes next to others depend on those; the ones in between do not.
    shifted = [b64encode(b"x" * shift + token.encode())[4:-4] for shift in range(3)]
    return (
        [text.encode() for text in texts] + shifted + [one.translate(bytes.maketrans(b"+/", b"-_")) for one in shifted]
    )


class Evidence(NamedTuple):
    """What went in, and all that was written."""

    sent: Mapping[str, tuple[str, ...]]
    written: Mapping[str, bytes]


@pytest.fixture(scope="module", params=[(level, form) for level in LEVELS for form in FORMATS], ids="-".join)
def evidence(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Of a server with this level and format that every way was tried on."""
    level, form = request.param
    folder = tmp_path_factory.mktemp("canaries")
    sent: dict[str, tuple[str, ...]] = dict(pairs())
    names = {"events, connect": "c"}
    known: dict[str, tuple[str, list[str], list[str]]] = {
        names.get(way, way): (sent[way][0], ["admin"], []) for way in TOLD_APART
    }
    env = {
        "SEMEL_TOKENS": str(token_file(folder, known | {"looker": (ADMIN, ["admin"], [])})),
        "SEMEL_JWT_KEYS": str(write_keys(folder / "keys.json")),
        "SEMEL_DELTAS_JWT_SECRET": SECRET,
        "SEMEL_LOG_LEVEL": level,
        "SEMEL_LOG_FORMAT": form,
        "SEMEL_ACCESS_LOG": "true",
        "SEMEL_SLOW_LOG_MS": "1",
        "SEMEL_DECISION_FAULT_FILE": str(folder / "breaks"),
    }
    with RunningServer(folder / "data", env=env, grpc=True) as server:
        lease = leased(server)
        # gRPC last: its library is the one that likes to talk, and a bundle has the last lines alone.
        for way in sorted(sent, key=lambda way: "gRPC" in way):
            answers = [WAYS[way](Site(server), token) for token in sent[way]]
            assert way in ASTRAY or answers[0] != answers[1], (way, answers)
        (folder / "breaks").touch()  # the lines of faults have their requests in them, and nothing else of these
        for way in sorted(sent, key=lambda way: "gRPC" in way):
            WAYS[way](Site(server), sent[way][0])
        (folder / "breaks").unlink()
        answer = httpx.get(server.url + "/v1/diagnose", headers={"Authorization": bearer(ADMIN)})
        live = Semel(server.url, {"SEMEL_TOKEN": ADMIN})("diagnose", "--output", str(folder), "--json")
    written = {"the server's output": server.output.read_bytes()}
    written |= {f"the folder, {one.name}": one.read_bytes() for one in (server.data / "logs").iterdir()}
    written |= parts_of("GET /v1/diagnose", answer.content)
    written |= parts_of("semel diagnose", Path(live.facts["file"]).read_bytes())
    (folder / "offline").mkdir()
    args = ("diagnose", "--data", str(server.data), "--log", str(server.output), "--output", str(folder / "offline"))
    offline = Semel("http://127.0.0.1:1").here(*args, "--json")
    written |= parts_of("semel diagnose --data", Path(offline.facts["file"]).read_bytes())
    return Evidence(sent | {"lease": (lease,)}, written)


def leased(server: RunningServer) -> str:
    """The token of a lease, which has been used."""
    headers = {"Authorization": bearer(ADMIN)}
    httpx.post(server.url + JOBS, json=JOB, headers=headers).raise_for_status()
    [job] = httpx.post(f"{server.url}{JOBS}/claim", json={"worker_id": "w"}, headers=headers).json()["jobs"]
    token = str(job["lease_token"])
    for call in ("heartbeat", "complete", "complete"):
        body = {"lease_token": token, "result": {"call": secrets.token_hex(4)}}
        assert httpx.post(f"{server.url}{JOBS}/{job['job_id']}/{call}", json=body, headers=headers).status_code < 500
    return token


def parts_of(name: str, content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {f"{name}, {one}": archive.read(one) for one in archive.namelist()}


@pytest.mark.parametrize("way", [*WAYS, "lease"])
def test_b1_a_credential_is_written_nowhere(evidence: Evidence, way: str) -> None:
    found = [
        place
        for place, content in evidence.written.items()
        if any(trace in content for token in evidence.sent[way] for trace in traces(token))
    ]
    assert found == []


def test_b1_what_is_searched_is_there(evidence: Evidence) -> None:
    """A search of nothing finds nothing: refused credentials are on record, and both bundles hold logs."""
    audits = [content for place, content in evidence.written.items() if place.endswith("audit.jsonl")]
    assert len(audits) == 4
    assert all(b"AUTH_FAILURE" in content for content in audits)
    assert sum(place.endswith("logs/server.log") for place in evidence.written) == 2
    assert evidence.written["the folder, access.jsonl"].count(b"\n") > len(WAYS)
    faults = [line for line in evidence.written["the server's output"].splitlines() if b"fault in a decision" in line]
    assert sum(b"request_id" in line for line in faults) > 5
    assert b"semel_server_request_seconds" in evidence.written["GET /v1/diagnose, metrics.txt"]

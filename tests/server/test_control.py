"""Two listeners: what is asked of the wrong one is refused and on record.

What each operation answers on which: `tests/openapi/test_every_operation.py`.
"""

from __future__ import annotations

import io
import json
import socket
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from tests.events.wire import Peer
from tests.harness.server import HOST, READY_SECONDS, RunningServer, free_port

ADMIN, READER = "the-admins-secret", "the-readers-secret"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, str]]:
    """A server with both listeners, and where its control is."""
    folder = tmp_path_factory.mktemp("control")
    tokens = folder / "tokens.toml"
    digests = {token: sha256(token.encode()).hexdigest() for token in (READER,)}
    tokens.write_text(f'[[token]]\nname = "reader"\nsha256 = "{digests[READER]}"\nroles = ["read"]\n')
    port = free_port()
    env = {
        "SEMEL_STORE": "memory:",
        "SEMEL_CONTROL_PORT": str(port),
        "SEMEL_TOKENS": str(tokens),
        "SEMEL_TOKEN_ACTIVE": ADMIN,
    }
    with RunningServer(folder / "data", env=env) as server:
        yield server, f"http://{HOST}:{port}"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_what_is_nowhere_is_nowhere(servers: tuple[RunningServer, str]) -> None:
    server, control = servers
    assert [httpx.get(url + "/nothing").status_code for url in (server.url, control)] == [404, 404]


def test_no_websocket_on_control(servers: tuple[RunningServer, str]) -> None:
    address = httpx.URL(servers[1])
    with socket.create_connection((address.host, address.port or 0), timeout=60) as line:
        line.sendall(
            b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert line.recv(12) == b"HTTP/1.1 410"


def on_record(server: RunningServer, event: str, wanted: set[str]) -> set[str]:
    """The paths of the lines about an event, once the wanted ones are there."""
    audit = server.data / "logs" / "audit.jsonl"
    deadline = time.monotonic() + 60
    paths: set[str] = set()
    while not wanted <= paths and time.monotonic() < deadline:
        time.sleep(0.05)
        # A line that is just being written has no end yet.
        whole = audit.read_text().rpartition("\n")[0] if audit.exists() else ""
        lines = [json.loads(line) for line in whole.splitlines()]
        found = [line["details"] for line in lines if line["event"] == event]
        paths = {one["path"] for one in found if one["remote_addr"] == HOST}
    return paths


def test_the_mismatch_is_on_record_without_its_query(servers: tuple[RunningServer, str]) -> None:
    server, control = servers
    httpx.get(control + "/v1/streams?prefix=private-thing")
    httpx.get(server.url + "/v1/diagnose")
    wanted = {"/v1/streams", "/v1/diagnose"}
    assert wanted <= on_record(server, "PORT_MISMATCH", wanted)
    assert "private-thing" not in (server.data / "logs" / "audit.jsonl").read_text()


def test_a_refused_credential_is_on_record_on_every_surface(servers: tuple[RunningServer, str]) -> None:
    server, _ = servers
    wrong = bearer("a-wrong-secret")
    paths = ["/v1/stream/s", "/v1/streams", "/metrics"]
    for path in paths:
        assert httpx.get(server.url + path, headers=wrong).status_code == 401
    with Peer(server.port) as peer:
        assert peer.error("connect", {"client_id": "c", "token": "a-wrong-secret"})["code"] == "auth_failed"
    assert {*paths, "/v1/events"} <= on_record(server, "AUTH_FAILURE", {*paths, "/v1/events"})
    assert "a-wrong-secret" not in (server.data / "logs" / "audit.jsonl").read_text()


def test_a_diagnosis_is_for_admins_and_holds_no_secret(servers: tuple[RunningServer, str]) -> None:
    url = servers[1] + "/v1/diagnose"
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, headers=bearer(READER)).status_code == 403
    assert httpx.post(url, headers=bearer(ADMIN)).status_code == 405
    answer = httpx.get(url, headers=bearer(ADMIN))
    assert answer.headers["Content-Type"] == "application/zip"
    name = answer.headers["Content-Disposition"].partition("filename=")[2].strip('"')
    assert time.strptime(name, "diag_bundle_%Y%m%d_%H%M%S.zip")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        parts = {one: archive.read(one).decode() for one in archive.namelist()}
    wanted = "about configuration environment health jobs metrics self_check store"
    assert {f"{one}.json" for one in wanted.split()} | {"metrics.txt", "logs/server.log"} <= set(parts)
    assert not [one for one, text in parts.items() if ADMIN in text or READER in text]
    configuration = json.loads(parts["configuration.json"])
    assert (configuration["token_active"], configuration["token_next"]) == ("set", "unset")
    assert "SEMEL_TOKEN_ACTIVE" in json.loads(parts["environment.json"])
    assert all(check["ok"] for check in json.loads(parts["self_check.json"]) if check["name"] != "disk")


def test_with_one_listener_everything_is_there(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_STORE": "memory:"}) as server:
        assert [httpx.get(server.url + path).status_code for path in ("/v1/diagnose", "/v1/streams")] == [200, 200]


def test_a_control_port_in_use_is_told_in_a_sentence(tmp_path: Path) -> None:
    with ExitStack() as stack:
        taken = stack.enter_context(socket.socket())
        taken.bind((HOST, 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        server = RunningServer(tmp_path / "data", env={"SEMEL_STORE": "memory:", "SEMEL_CONTROL_PORT": port})
        server.launch({})
        assert server.wait_for_death(READY_SECONDS) == 1
    assert f"port {port}" in server.output_tail()
    assert "--control-port" in server.output_tail()
    assert "Traceback" not in server.output_tail()

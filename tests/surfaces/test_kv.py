"""A sixth surface is one folder and one line: `examples/kv`, put into a copy of the source, and nothing else edited."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.harness.server import HOST, READY_SECONDS, STOP_SECONDS, free_port
from tests.harness.tokens import token_file

ROOT = Path(__file__).parent.parent.parent
ADMIN, READER = "the-token-of-the-admin", "the-token-of-the-reader"


class SixthServer:
    """The server of a source tree with the sixth surface in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "examples/kv", folder / "src/semel/surfaces/kv")
        registry = folder / "src/semel/surfaces/registry.py"
        text = registry.read_text()
        assert text.count('    "deltas",\n') == 1
        registry.write_text(text.replace('    "deltas",\n', '    "deltas",\n    "kv",\n'))
        tokens = token_file(
            folder, {"admin": (ADMIN, ["read", "write", "admin"], []), "reader": (READER, ["read"], ["kv:open-*"])}
        )
        self.env = {**os.environ, "PYTHONPATH": str(folder / "src"), "SEMEL_TOKENS": str(tokens)}
        self.start()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        command = [sys.executable, "-m", "semel", "serve", "--port", str(self.port), "--ledger-grpc-port", "0"]
        command += ["--data", str(self.folder / "data"), "--kv-max-value-bytes", "1000"]
        with (self.folder / "log").open("ab") as output:
            self.process = subprocess.Popen(command, env=self.env, cwd=self.folder, stdout=output, stderr=output)
        deadline = time.monotonic() + READY_SECONDS
        while not self._is_ready():
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(self.url + "/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def ask(self, method: str, name: str, body: bytes = b"", token: str = ADMIN, **headers: str) -> httpx.Response:
        known = {"Authorization": f"Bearer {token}"} | {key.replace("_", "-"): value for key, value in headers.items()}
        return httpx.request(method, f"{self.url}/v1/kv/{name}", content=body, headers=known)

    def put(self, name: str, body: bytes, **headers: str) -> tuple[int, str | None]:
        answer = self.ask("PUT", name, body, **headers)
        return answer.status_code, answer.headers.get("etag")

    def end(self) -> None:
        """End it without warning."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SixthServer]:
    made = SixthServer(tmp_path_factory.mktemp("sixth"))
    yield made
    made.end()


def test_a_value_is_stored_and_read_with_its_version(server: SixthServer) -> None:
    assert server.put("a", b"one") == (204, '"1"')
    assert server.put("a", b"two") == (204, '"2"')
    answer = server.ask("GET", "a")
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (200, b"two", '"2"')
    assert server.ask("GET", "missing").json()["code"] == "NOT_FOUND"


def test_a_condition_that_does_not_hold_changes_nothing(server: SixthServer) -> None:
    assert server.put("b", b"one", If_None_Match="*") == (204, '"1"')
    assert server.put("b", b"two", If_None_Match="*")[0] == 412
    assert server.put("b", b"two", If_Match='"7"')[0] == 412
    assert server.put("b", b"two", If_Match='"1"') == (204, '"2"')
    assert server.put("b", b"three", If_Match="W/1")[0] == 400


def test_a_retry_gets_the_first_answer_also_after_a_kill(server: SixthServer) -> None:
    for _ in range(2):
        assert server.put("c", b"one", Idempotency_Key="k") == (204, '"1"')
    assert server.put("c", b"two") == (204, '"2"')
    server.end()
    server.start()
    again = server.ask("PUT", "c", b"one", Idempotency_Key="k")
    assert (again.headers["etag"], again.headers["idempotency-replayed"]) == ('"1"', "true")
    assert server.put("c", b"other", Idempotency_Key="k")[0] == 409
    assert server.ask("GET", "c").content == b"two"


def test_many_that_race_with_one_key_write_once(server: SixthServer) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: server.put("d", b"x", Idempotency_Key="same"), range(32)))
    assert set(answers) == {(204, '"1"')}


def test_the_shell_serves_it_like_the_others(server: SixthServer) -> None:
    assert httpx.get(server.url + "/v1/kv/a").status_code == 401
    assert server.ask("PUT", "open-1", b"x", token=READER).json()["code"] == "FORBIDDEN"
    assert server.ask("GET", "closed", token=READER).status_code == 403  # the scope names the surface
    assert server.ask("PUT", "e", b"x" * 1_001).status_code == 413  # the flag is its setting
    assert server.ask("OPTIONS", "e").headers["allow"] == "GET, HEAD, OPTIONS, PUT"
    assert server.ask("POST", "e").status_code == 405
    metrics = httpx.get(server.url + "/metrics", headers={"Authorization": f"Bearer {ADMIN}", "Accept": "text/plain"})
    assert 'semel_kv_writes_total{outcome="stored"}' in metrics.text

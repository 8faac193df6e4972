"""The commands of `docs/operating/credentials.md`, typed beside servers that listen to this machine alone.

A server is started with the options of the page, but for the address. `openssl` is left to the reader: its tokens are
made here.
"""

from __future__ import annotations

import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from docs.site.stage import DOCS
from tests.cli.command import Finished, Semel
from tests.docs.reader import blocks
from tests.docs.terminal import commands
from tests.harness.server import RunningServer
from tests.harness.together import eventually

PAGE = (DOCS / "operating/credentials.md").read_text("utf-8")
TYPED = [one.line for one in commands(PAGE)]
NOT_TYPED = ("openssl ", "semel serve --host 0.0.0.0 --jwt-keys https:")
"""The last one needs an issuer on the network: tests/server/auth/test_jwks_tls.py has one, with a certificate."""
JSON = {"Content-Type": "text/plain"}


class Typist:
    """Types lines of the page in a folder, each once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.left = [line for line in TYPED if not line.startswith(NOT_TYPED)]
        self.variables: dict[str, str] = {}
        self.url = "http://127.0.0.1:1"

    def next(self, beginning: str) -> str:
        """The next line, which begins so."""
        line = self.left.pop(0)
        assert line.startswith(beginning), line
        return line

    def export(self) -> None:
        """`export NAME=$(openssl ...)` or `export NAME=VALUE`."""
        name, _, value = self.next("export ").removeprefix("export ").partition("=")
        self.variables[name] = secrets.token_urlsafe(32) if value.startswith("$(openssl rand") else value

    def semel(self, beginning: str) -> Finished:
        """A command that succeeds."""
        line = self.next(beginning)
        run = Semel(self.url, self.variables).here(*shlex.split(line)[1:])
        assert run.code == 0, (line, run.err)
        return run

    def serve(self, more: Mapping[str, str] | None = None, data: str = "data") -> RunningServer:
        """A server with the options of the line, which must be known."""
        words = shlex.split(self.next("semel serve --host 0.0.0.0"))[4:]
        env = dict(more or {}) | self.variables
        while words:
            name = words.pop(0)
            assert name.startswith("--")
            is_flag = not words or words[0].startswith("--")
            env["SEMEL_" + name[2:].replace("-", "_").upper()] = "true" if is_flag else words.pop(0)
        for name in ("SEMEL_TOKENS", "SEMEL_JWT_KEYS"):
            if name in env:
                env[name] = str(self.folder / env[name])
        server = RunningServer(self.folder / data, env=env)
        self.url = server.url
        return server

    def status(self, token: str) -> int:
        """What a caller with this token gets."""
        return httpx.get(f"{self.url}/metrics", headers={"Authorization": f"Bearer {token}"}).status_code


@pytest.fixture
def typist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typist:
    monkeypatch.chdir(tmp_path)
    return Typist(tmp_path)


def in_the_environment(typist: Typist) -> None:
    """One token, and its successor."""
    typist.export()
    with typist.serve(data="one"):
        assert typist.status(typist.variables["SEMEL_TOKEN_ACTIVE"]) == 200
        assert typist.status("another") == 401
    typist.export()
    typist.export()
    with typist.serve(data="one"):
        names = ("SEMEL_TOKEN_ACTIVE", "SEMEL_TOKEN_NEXT")
        assert [typist.status(typist.variables[name]) for name in names] == [200, 200]
    typist.variables.clear()


def in_the_store(typist: Typist) -> None:
    """The output of a command is kept where the page says."""
    (typist.folder / "operator.token").write_text(typist.semel("semel token create operator").out)
    with typist.serve():
        (typist.folder / "orders.token").write_text(typist.semel("semel token create orders-service").out)
        typist.semel("semel streams create orders/1")
        assert {"operator", "orders-service"} <= set(re.findall(r"[\w-]+", typist.semel("semel token list").out))


def in_a_file(typist: Typist) -> None:
    """The block of the page is the file, with the hash that `sha256sum` says."""
    token = secrets.token_urlsafe(32)
    (typist.folder / "orders.token").write_text(token)
    said = subprocess.run(["sh", "-c", typist.next("sha256sum ")], check=True, capture_output=True, text=True).stdout
    [digest] = re.findall(r"[0-9a-f]{64}", said)
    [text] = [one.text for one in blocks(PAGE) if one.text.startswith("# tokens.toml")]
    text = text.replace("the 64 hex digits that sha256sum printed", digest)
    file = typist.folder / "tokens.toml"
    file.write_text(text.replace("those of another token", sha256(b"operator").hexdigest()))
    with typist.serve(data="file") as server:
        typist.semel("semel streams create orders/1")
        typist.semel("semel streams append orders/1")
        url = f"{typist.url}/v1/stream/elsewhere"
        assert httpx.put(url, headers=JSON | {"Authorization": f"Bearer {token}"}).status_code == 403
        file.write_text(text.replace(digest, "0" * 64).replace("those of another token", "1" * 64))
        words = typist.next("kill -HUP").replace("4711", str(server.pid))
        subprocess.run(shlex.split(words), check=True)
        eventually(lambda: typist.status(token) == 401, "the token is revoked")


def of_an_issuer(typist: Typist) -> None:
    [block] = [one.text for one in blocks(PAGE) if one.language == "python"]
    subprocess.run([sys.executable, "-c", block], cwd=typist.folder, check=True, timeout=90)
    with typist.serve(data="jwt"):
        typist.semel("semel streams create notes")


def test_every_command_succeeds_where_the_page_shows_it(typist: Typist) -> None:
    for follow in (in_the_environment, in_the_store, in_a_file, of_an_issuer):
        follow(typist)
    assert typist.left == []

"""The commands of `docs/once/proxy.md`, typed in front of a real service: a request takes effect once."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from docs.site.stage import DOCS
from tests.cli.command import Semel
from tests.docs.terminal import Command, commands
from tests.harness.server import free_port
from tests.once.conftest import fresh_schema
from tests.proxy.upstream import Upstream, serving

FIRST, CHARGE, AGAIN, INIT, SECOND, _ = commands((DOCS / "once/proxy.md").read_text("utf-8"))
SHOWN, UPSTREAM = "http://127.0.0.1:8789", "http://127.0.0.1:8000"
DATABASE = "postgresql://app@db.example.com/shop"


@contextmanager
def proxied(command: Command, upstream: Upstream, folder: Path, store: str = "") -> Iterator[tuple[str, str]]:
    """The proxy of a line on a free port: its URL, and the line that it says first."""
    port = free_port()
    line = command.line.replace(UPSTREAM, upstream.url).replace(DATABASE, store)
    words = [sys.executable, "-u", "-m", *shlex.split(line), "--port", str(port)]
    env = Semel("").env
    with subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{port}"
            said = process.stdout.readline().decode()
            yield url, said.replace(url, SHOWN).replace(upstream.url, UPSTREAM)
        finally:
            process.terminate()


def curl(line: str, url: str) -> str:
    """What a line of curl says; a comment is none of its words."""
    words = shlex.split(line.replace(SHOWN, url), comments=True)
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout.lower()


def test_a_retry_gets_the_first_answer(tmp_path: Path) -> None:
    with serving() as upstream, proxied(FIRST, upstream, tmp_path) as (url, said):
        assert said == FIRST.shown.strip() + "\n"
        first, again = curl(CHARGE.line, url), curl(AGAIN.line, url)
        header = AGAIN.line.partition("# ")[2].lower()
        assert (header in first, header in again) == (False, True)
        assert first.splitlines()[0] == again.splitlines()[0]
        assert upstream.effects == 1


def test_a_route_may_require_a_key(tmp_path: Path) -> None:
    store = fresh_schema()
    made = Semel("").here(*shlex.split(INIT.line.replace(DATABASE, store))[1:])
    assert made.code == 0, made.err
    with serving() as upstream, proxied(SECOND, upstream, tmp_path, store) as (url, said):
        assert said.startswith("Semel proxies"), said
        assert httpx.post(f"{url}/charges", content=b"5").status_code == 400
        assert httpx.put(f"{url}/profiles/ada", content=b"5").status_code == 400
        assert upstream.effects == 0
        assert httpx.post(f"{url}/elsewhere", content=b"5").is_success

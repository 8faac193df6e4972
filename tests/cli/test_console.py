"""`semel console`: a link for the person who asks, printed or given to a browser, and one sentence for each trouble."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import Request, urlopen

import pytest

from semel import Client
from tests.cli.command import Finished, Semel
from tests.harness.server import RunningServer, free_port
from tests.harness.tokens import token_file
from tests.server.console.links import caller, exchange

ADMIN = "the-admin-token"
NAMED = {"ada": (ADMIN, ("admin",), ())}
NO_DISPLAY = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": ""}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("console")
    env = {"SEMEL_TOKENS": str(token_file(folder, NAMED)), "SEMEL_NAMESPACES": "shop"}
    with RunningServer(folder / "data", env=env) as running:
        yield running


@pytest.fixture
def browser(tmp_path: Path) -> Path:
    """A program in the place of a browser, which writes down what it is asked to open."""
    program = tmp_path / "browser"
    program.write_text(f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/asked.new\nmv {tmp_path}/asked.new {tmp_path}/asked\n')
    program.chmod(0o700)
    return tmp_path


def env_of(folder: Path) -> dict[str, str]:
    return {"SEMEL_TOKEN": ADMIN, "BROWSER": f"{folder / 'browser'} %s", "XDG_RUNTIME_DIR": str(folder)}


def asked(folder: Path) -> str:
    return (folder / "asked").read_text()


def session_of(printed: str, url: str) -> str:
    """The session that a printed link becomes."""
    found = re.fullmatch(re.escape(url) + r"/console#code=([\w-]{32})\n", printed)
    assert found is not None, printed
    answer = exchange(url, found[1])
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def refused(done: Finished, sentence: str) -> None:
    assert (done.code, done.out) == (1, ""), done
    assert re.fullmatch(f"Error: .*{sentence}.*\n", done.err), done.err


def test_no_open_prints_the_link_alone(server: RunningServer) -> None:
    done = Semel(server.url, {"SEMEL_TOKEN": ADMIN})("console", "--no-open")
    assert "works once" in done.err
    assert caller(server.url, session_of(done.out, server.url))["name"] == "ada"


def test_the_credential_may_be_in_a_file_and_the_url_in_an_option(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(ADMIN + "\n")
    semel = Semel("http://127.0.0.1:1")
    done = semel("console", "--no-open", "--json", "--url", f"{server.url}/", "--token-file", str(file))
    assert done.facts["url"].startswith(f"{server.url}/console#code=")
    assert done.facts["opened"] is False
    assert done.facts["expires_at"] > "2026"


def test_a_machine_without_a_display_gets_the_link_printed(server: RunningServer) -> None:
    done = Semel(server.url, {"SEMEL_TOKEN": ADMIN, **NO_DISPLAY})("console")
    assert caller(server.url, session_of(done.out, server.url))


def test_a_browser_gets_a_file_that_only_its_user_can_read(server: RunningServer, browser: Path) -> None:
    old = browser / "semel-console-old.html"
    old.write_text("of an earlier run")
    os.utime(old, (time.time() - 300, time.time() - 300))
    done = Semel(server.url, env_of(browser))("console", "--json")
    assert done.facts["url"] == f"{server.url}/console"
    assert done.facts["opened"] is True
    file = Path(asked(browser).removeprefix("file://"))
    assert file.parent == browser
    assert file.stat().st_mode & 0o777 == 0o600
    assert not old.exists()
    found = re.search(r'url=([^"]+)">', file.read_text())
    assert found is not None
    assert caller(server.url, session_of(found[1] + "\n", server.url))["name"] == "ada"


def test_a_browser_that_does_not_start_leaves_the_link_on_the_terminal(server: RunningServer, tmp_path: Path) -> None:
    env = {"SEMEL_TOKEN": ADMIN, "BROWSER": "/nowhere/browser %s", "XDG_RUNTIME_DIR": str(tmp_path), "PATH": "/nowhere"}
    done = Semel(server.url, env)("console")
    assert done.out.startswith(f"{server.url}/console#code="), done


def test_development_mode_opens_the_console_without_a_code(browser: Path, tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data") as server:
        assert Semel(server.url, env_of(browser))("console").code == 0
        assert asked(browser) == f"{server.url}/console"
        printed = Semel(server.url)("console", "--no-open")
        assert (printed.out, printed.err) == (f"{server.url}/console\n", "")


def test_a_namespace_has_links_of_its_own(server: RunningServer) -> None:
    url = f"{server.url}/ns/shop"
    done = Semel(url, {"SEMEL_TOKEN": ADMIN})("console", "--no-open")
    assert caller(url, session_of(done.out, url))["namespace"] == "shop"


def test_the_control_listener_is_asked_for_by_name(tmp_path: Path) -> None:
    control = free_port()
    env = {"SEMEL_TOKENS": str(token_file(tmp_path, NAMED)), "SEMEL_CONTROL_PORT": str(control)}
    with RunningServer(tmp_path / "data", env=env) as server:
        own = f"http://127.0.0.1:{control}"
        done = Semel(own, {"SEMEL_TOKEN": ADMIN})("console", "--no-open")
        assert caller(own, session_of(done.out, own))
        refused(Semel(server.url, {"SEMEL_TOKEN": ADMIN})("console"), "control listener.*--url")


class Proxy(BaseHTTPRequestHandler):
    """A reverse proxy that serves the server below a prefix."""

    target = ""

    def do_POST(self) -> None:
        """Pass a request on without the prefix."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path.startswith("/semel/")
        headers = {name: self.headers[name] for name in ("Authorization", "Content-Type", "Host") if self.headers[name]}
        with urlopen(Request(self.target + self.path.removeprefix("/semel"), body, headers)) as answer:
            content = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_base_url_below_the_prefix_of_a_proxy_leads_there(server: RunningServer) -> None:
    Proxy.target = server.url
    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        Thread(target=proxy.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{proxy.server_address[1]}/semel"
        done = Semel(url, {"SEMEL_TOKEN": ADMIN})("console", "--no-open")
        assert done.out.startswith(f"{url}/console#code="), done
        assert caller(server.url, session_of(done.out.replace(url, server.url), server.url))
        proxy.shutdown()


def test_each_trouble_has_its_sentence(server: RunningServer, tmp_path: Path) -> None:
    refused(Semel(f"http://127.0.0.1:{free_port()}")("console"), "No server answers.*semel serve")
    refused(Semel(server.url)("console"), "SEMEL_TOKEN or --token-file")
    refused(Semel(server.url, {"SEMEL_TOKEN": "wrong"})("console"), "not known here.*SEMEL_TOKEN or --token-file")
    with RunningServer(tmp_path / "data", env={"SEMEL_CONSOLE": "0"}) as off:
        refused(Semel(off.url)("console"), "turned off.*SEMEL_CONSOLE=0")


def test_the_client_makes_links_too(server: RunningServer) -> None:
    with Client(server.url, token=ADMIN) as client:
        link = client.server.console_link()
        assert link.code is not None
        assert link.code not in repr(link)
        assert caller(server.url, session_of(link.url(server.url) + "\n", server.url))
        assert json.dumps(link.expires_at)

"""Host and Origin: the rule by itself, and on the WebSockets of a real server.

Every operation is asked in `tests/openapi/test_every_operation.py`.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from semel.server.http.cors import OriginPolicy, Provenance, is_loopback_name, make_policy, provenance_in
from semel.server.settings_loader import SettingsError, load_settings
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually

EVIL = b"http://evil.example"
LOOPBACK_HOSTS = ["localhost", "LOCALHOST:1", "a.b.localhost:65535", "127.0.0.1", "127.9.8.7:80", "[::1]", "[::1]:8788"]
FOREIGN_HOSTS = [
    *("evil.example", "evil.example:8788", "localhost.evil.example", "notlocalhost", "127.0.0.1.evil.example", ""),
    *("0.0.0.0", "[::]", "128.0.0.1", "192.168.1.5:8788", "[::2]", "::1", "127.1", "localhost@evil.example", "a b"),
    *("[::1", "localhost:x", "localhost:123456", "localhost/", "x" * 300, "[127.0.0.1]"),
]
LOOPBACK_ORIGINS = [
    *("http://localhost", "https://localhost:3000", "http://app.localhost:1", "http://127.0.0.1:5173"),
    *("https://127.1.2.3", "http://[::1]:80", "HTTP://LOCALHOST"),
]
FOREIGN_ORIGINS = [
    *("null", "", "http://evil.example", "https://localhost.evil.example", "file://", "ftp://localhost", "localhost"),
    *("http://localhost/", "http://localhost:3000/x", "http://user@localhost", "chrome-extension://abc", "http://"),
    *("http://0.0.0.0:3000", "http://192.168.1.5", "http://127.0.0.1.evil.example", "http://localhost, http://evil"),
]


def policy(hosts: str = "", origins: str = "", *, is_open: bool = True, is_loopback: bool = True) -> OriginPolicy:
    return make_policy(hosts, origins, is_open=is_open, is_loopback=is_loopback)


def takes(rule: OriginPolicy, host: str = "localhost", origin: str | None = None) -> bool:
    origins = [] if origin is None else [origin.encode()]
    return rule.refusal(Provenance([host.encode()], origins)) is None


@pytest.mark.parametrize("host", LOOPBACK_HOSTS)
def test_b3_without_credentials_loopback_hosts_are_taken(host: str) -> None:
    assert takes(policy(), host)


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_b3_without_credentials_other_hosts_are_refused(host: str) -> None:
    assert not takes(policy(), host)


@pytest.mark.parametrize("origin", LOOPBACK_ORIGINS)
def test_b3_without_credentials_loopback_origins_are_taken(origin: str) -> None:
    assert takes(policy(), origin=origin)


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_b3_without_credentials_other_origins_are_refused(origin: str) -> None:
    assert not takes(policy(), origin=origin)


def test_b3_what_comes_from_no_browser_is_taken() -> None:
    assert policy().refusal(Provenance([], [])) is None
    assert takes(policy())


def test_b3_every_one_of_several_headers_counts() -> None:
    assert policy().refusal(provenance_in([(b"host", b"localhost"), (b"host", b"evil.example")])) is not None
    both = [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"origin", EVIL)]
    assert policy().refusal(provenance_in(both)) is not None


@pytest.mark.parametrize("host", ["192.168.1.5:8788", "[fd00::1]:8788", "localhost", "semel.test", "a.lan"])
def test_b3_beyond_loopback_addresses_and_named_hosts_are_taken(host: str) -> None:
    assert takes(policy("semel.test, *.lan", is_loopback=False), host)
    assert not takes(policy("semel.test, *.lan", is_loopback=False), "evil.example")
    assert not takes(policy("semel.test, *.lan", is_loopback=False), "xlan")


def test_b3_a_page_of_the_called_host_is_taken_and_of_its_neighbour_not() -> None:
    rule = policy(is_loopback=False)
    assert takes(rule, "192.168.1.5:8788", "http://192.168.1.5:8788")
    assert not takes(rule, "192.168.1.5:8788", "http://192.168.1.5")
    assert not takes(rule, "evil.example", "http://evil.example")


@pytest.mark.parametrize("any_of_them", ["", "*"])
def test_b3_with_credentials_everything_is_taken_unless_named(any_of_them: str) -> None:
    rule = policy(any_of_them, any_of_them, is_open=False)
    assert takes(rule, "semel.example", "https://app.example")
    assert takes(rule, "semel.example", "null")
    assert not takes(rule, "semel.example", "\xff\x00")


def test_b3_with_credentials_lists_are_kept() -> None:
    rule = policy("semel.example,*.semel.example", "https://app.example/,https://b.example:8443", is_open=False)
    assert all(takes(rule, host) for host in ("semel.example:443", "SEMEL.example", "eu.semel.example", "localhost:1"))
    assert not any(takes(rule, host) for host in ("evil.example", "semel.example.evil.example", "xsemel.example"))
    assert all(takes(rule, origin=origin) for origin in ("https://app.example", "https://b.example:8443"))
    strange = ("http://app.example", "https://app.example:8443", "http://evil.example", "null", "http://localhost:3000")
    assert not any(takes(rule, origin=origin) for origin in strange)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("allowed_hosts", "semel.example:8788"),
        ("allowed_hosts", "https://semel.example"),
        ("allowed_origins", "app.example"),
        ("allowed_origins", "https://app.example/path"),
        ("allowed_origins", "null"),
        ("allowed_hosts", "*"),
        ("allowed_origins", "https://app.example, *"),
    ],
)
def test_b3_lists_that_would_not_do_what_they_say_are_refused(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        load_settings({name: value}, {}, None)


def test_b3_a_star_needs_credentials() -> None:
    settings = load_settings({"allowed_hosts": "*", "allowed_origins": "*"}, {"SEMEL_TOKEN_ACTIVE": "t"}, None)
    assert takes(settings.origin_policy, "evil.example", "http://evil.example")
    free = {"SEMEL_TOKEN_ACTIVE": "t", "SEMEL_TOKEN_REQUIRED": "0"}
    assert not takes(load_settings({}, free, None).origin_policy, "evil.example")
    with pytest.raises(SettingsError, match="credential"):
        load_settings({"allowed_origins": "*"}, free, None)


def test_loopback_names_are_remembered_within_bounds() -> None:
    for number in range(10_000):
        is_loopback_name(b"%d.example" % number)
    assert is_loopback_name.cache_info().currsize <= 256


# -- on a server -------------------------------------------------------------------------------------------------------

STRANGE: dict[str, dict[str, str]] = {
    "host": {"Host": "evil.example"},
    "origin": {"Origin": "http://evil.example"},
    "null": {"Origin": "null"},
    "rebound": {"Host": "evil.example", "Origin": "http://evil.example"},
}
SOCKETS = ("/v1/events", "/v1/sync/g/ws", "/sync/g/ws")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("origins") / "data", env={"SEMEL_STORE": "memory:"}) as running:
        yield running


TOKEN = "the-token"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """With credentials and both lists."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "tokens.toml").write_text(
        f'[[token]]\nname = "t"\nsha256 = "{sha256(TOKEN.encode()).hexdigest()}"\nroles = ["admin"]\n'
    )
    env = {
        "SEMEL_STORE": "memory:",
        "SEMEL_TOKENS": str(folder / "tokens.toml"),
        "SEMEL_ALLOWED_HOSTS": "semel.example",
        "SEMEL_ALLOWED_ORIGINS": "https://app.example",
    }
    with RunningServer(folder / "data", env=env) as running:
        yield running


def handshake(server: RunningServer, path: str, **headers: str) -> int:
    """The status of the answer to a handshake; below zero for a refusal of another kind."""
    url = f"ws://{headers.pop('Host', HOST)}:{server.port}{path}"
    line = socket.create_connection((HOST, server.port))  # whatever name the URL has
    try:
        with connect(url, sock=line, additional_headers=headers, proxy=None, open_timeout=60):
            return 101
    except InvalidStatus as refused:
        answer = refused.response
    return answer.status_code if b"FORBIDDEN_ORIGIN" in (answer.body or b"") else -answer.status_code


@pytest.mark.parametrize("path", SOCKETS)
def test_b3_both_websockets_know_the_same_rule(server: RunningServer, path: str) -> None:
    assert handshake(server, path) == 101
    assert handshake(server, path, Origin="http://localhost:3000") == 101
    assert handshake(server, path, Host="app.localhost", Origin="https://127.0.0.1") == 101
    for strange in ("host", "origin", "null", "rebound"):
        assert handshake(server, path, **STRANGE[strange]) == 403, strange


def test_b3_with_credentials_both_lists_hold_on_both_websockets(guarded: RunningServer) -> None:
    for path in SOCKETS:
        known = {"Authorization": f"Bearer {TOKEN}", "Host": "semel.example"}
        assert handshake(guarded, path, **known) == 101
        assert handshake(guarded, path, **known, Origin="https://app.example") == 101
        assert handshake(guarded, path, **known, Origin="http://evil.example") == 403
        assert handshake(guarded, path, **known | {"Host": "evil.example"}) == 403


def test_b3_a_refusal_is_on_record(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_STORE": "memory:"}) as running:
        httpx.get(f"{running.url}/v1/streams?token=t", headers=STRANGE["rebound"])
        log = running.data / "logs" / "audit.jsonl"
        line = '"host":"evil.example","origin":"http://evil.example","path":"/v1/streams","remote_addr":"127.0.0.1"'
        eventually(lambda: log.exists() and line in log.read_text(), "an audit line")

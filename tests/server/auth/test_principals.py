"""Tokens of a file are principals that may do what the file says, and no more; a file that cannot be used is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from tests.cli.command import Semel
from tests.harness.server import RunningServer
from tests.harness.tokens import token_file

ENTRIES: dict[str, tuple[str, list[str], list[str]]] = {
    "orders": ("token-orders", ["write"], ["streams:o/*"]),
    "one": ("token-one", ["admin"], ["*:one"]),
    "sum": ("token-sum", ["read"], ["streams:a", "*:b/*", "*:c"]),
    "accents": ("token-accents", ["read"], ["*:cafe\u0301", "events:e\u0301*"]),
    "free": ("token-free", ["read"], []),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("principals")
    env = {"SEMEL_STORE": "memory:", "SEMEL_TOKENS": str(token_file(folder, ENTRIES))}
    with RunningServer(folder / "data", env=env) as running:
        yield running


def asked(server: RunningServer, name: str, method: str, path: str) -> int:
    headers = {"Authorization": f"Bearer {ENTRIES[name][0]}"}
    body = {"kind": "k", "queue": "o/1"} if method == "POST" else None
    return httpx.request(method, server.url + path, headers=headers, json=body).status_code


READS = {
    **{f"streams {name}": f"/v1/stream/{quote(name)}" for name in ("a", "b/1", "c", "d", "one", "one/two", "o/1")},
    **{f"streams {name}": f"/v1/stream/{quote(name)}" for name in ("cafe\u0301", "caf\u00e9")},
    **{
        f"events {name}": f"/v1/events?partition={quote(name)}"
        for name in ("a", "b/1", "c", "caf\u00e9", "\u00e9t\u00e9")
    },
}
MAY: Mapping[str, set[str]] = {
    "orders": set(),
    "one": {"streams one"},
    "sum": {"streams a", "streams b/1", "streams c", "events b/1", "events c"},
    "accents": {"streams cafe\u0301", "events caf\u00e9", "events \u00e9t\u00e9"},
    "free": set(READS),
}
"""A scope is normalized for events alone; scopes of one surface and of all add up; without scopes it is everything."""


@pytest.mark.parametrize("name", ENTRIES)
def test_a_token_reads_what_its_scopes_name(server: RunningServer, name: str) -> None:
    statuses = {what: asked(server, name, "GET", path) for what, path in READS.items()}
    assert {what for what, status in statuses.items() if status != 403} == MAY[name]


def test_roles_and_scopes_bound_writes(server: RunningServer) -> None:
    calls = [("PUT", "/v1/stream/o/1"), ("PUT", "/v1/stream/p/1"), ("POST", "/v1/jobs")]
    assert [asked(server, "orders", *call) for call in calls] == [201, 403, 403]
    assert [asked(server, "free", *call) for call in calls] == [403, 403, 403]
    caller = httpx.get(f"{server.url}/v1/caller", headers={"Authorization": "Bearer token-orders"}).json()
    assert (caller["actor"], caller["roles"], caller["expires_ms"]) == ("client:orders", ["write"], None)


DIGEST = sha256(b"a-very-secret-token").hexdigest()
GOOD = f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\n'
BAD_FILES = {
    "": "has no [[token",
    "[[token]]\n": "needs a name",
    "[[quota]]\nconnections = 1\n" + GOOD: "every [[quota]] needs the name",
    '[[token]]\nname = "user:ann"\n': "may not begin with",
    '[[token]]\nname = "a"': "sha256",
    '[[token]]\nname = "a"\nsha256 = "zz"': "sha256",
    '[[token]]\nname = "a"\nsha256 = "aa"': "32",
    GOOD + 'roles = ["king"]': "roles",
    GOOD + GOOD.replace('"a"', '"b"'): "b and a have the same token",
    "[[token]": "cannot be read",
    GOOD + 'scope = ["streams:a"]': "unknown field 'scope'",
    GOOD + "scopes = []": "must be non-empty lists",
    GOOD + 'scopes = "streams:a"': "lists",
    GOOD + 'scopes = ["orders"]': "SURFACE:NAME",
    GOOD + 'scopes = ["stream:orders"]': "streams, events",
    GOOD + "scopes = [7]": "SURFACE:NAME",
    **{GOOD + f"namespaces = {names}": "namespaces of 'a'" for names in ('"red"', "[]", "[7]", '["Red"]', '["../x"]')},
}


def test_a_token_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    told = {}
    for number, text in enumerate(BAD_FILES):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        run = Semel("http://127.0.0.1:1", {"SEMEL_LEDGER_GRPC_PORT": "0"}).here(
            "config", "check", "--port", "0", "--data", str(tmp_path / "data"), "--tokens", str(file)
        )
        told[text] = (run.code, run.out)
        assert DIGEST not in run.out + run.err
    assert {text: said for text, said in told.items() if said[0] != 1 or BAD_FILES[text] not in said[1]} == {}

"""`semel token`: through a server and without one; a token is printed once, and errors are one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.backup.clone import clone
from tests.cli.command import Finished, Semel
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer


@pytest.fixture
def semel() -> Semel:
    return Semel("http://127.0.0.1:1")


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Semel, RunningServer]]:
    """The command with an administrator's token, and its server."""
    folder = tmp_path_factory.mktemp("token")
    made = Semel("http://127.0.0.1:1").here(
        "token", "create", "boss", "--role", "admin", "--offline", "--data", str(folder / "data")
    )
    assert made.code == 0, made.err
    file = folder / "boss.token"
    file.write_bytes(made.raw)
    with RunningServer(folder / "data") as server:
        yield Semel(server.url, {"SEMEL_TOKEN": file.read_text().strip()}), server


def told(done: Finished) -> str:
    """The one sentence of an error."""
    assert done.code in (1, 2), done.out
    assert done.out == ""
    return done.err.strip().splitlines()[-1]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_first_token_needs_no_server(semel: Semel, kind: str, tmp_path: Path) -> None:
    place = ["--store", f"sqlite:{tmp_path}/data" if kind == "sqlite" else fresh_url(), "--offline"]
    made = semel.here("token", "create", "boss", "--role", "admin", "--expires", "90d", *place)
    assert (made.code, made.out.startswith("semel_"), made.out.count("\n")) == (0, True, 1)
    [line] = semel.here("token", "list", "--json", *place).out.splitlines()
    facts = json.loads(line)
    assert (facts["name"], facts["roles"], facts["state"]) == ("boss", ["admin"], "active")
    assert made.out.strip() not in line
    new = semel.here("token", "rotate", facts["id"], "--overlap", "1h", "--json", *place).facts
    assert (new["replaces"]["id"], new["token"][:6]) == (facts["id"], "semel_")
    assert semel.here("token", "revoke", facts["id"], "--yes", "--json", *place).facts["revoked"] is True
    states = [json.loads(one)["state"] for one in semel.here("token", "list", "--json", *place).out.splitlines()]
    assert sorted(states) == ["active", "revoked"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_changes_without_a_server_are_in_the_audit_log_of_the_data_folder(
    semel: Semel, kind: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    store = [] if kind == "sqlite" else ["--store", fresh_url()]

    def make(name: str) -> None:
        made = semel.here("token", "create", name, "--role", "admin", "--offline", "--data", str(data), *store)
        assert made.code == 0, made.err

    data.mkdir()
    make("ada")
    with RunningServer(data, env={"SEMEL_STORE": store[1]} if store else {}):
        if store:
            make("bob")  # beside a node that writes to the same file
    make("eve")
    events = [json.loads(line) for line in (data / "logs" / "audit-important.jsonl").read_text().splitlines()]
    made = [line["details"]["name"] for line in events if line["event"] == "TOKEN_CREATED"]
    assert made == (["ada", "bob", "eve"] if store else ["ada", "eve"])


def test_a_server_is_told_by_the_same_commands(admin: tuple[Semel, RunningServer]) -> None:
    semel, server = admin
    made = semel.here("token", "create", "ada", "--scope", "streams:mine*", "--json").facts
    assert (made["name"], made["roles"], made["scopes"]) == ("ada", ["read", "write"], ["streams:mine*"])

    def put(token: str, name: str) -> int:
        return httpx.put(f"{server.url}/v1/stream/{name}", headers={"Authorization": f"Bearer {token}"}).status_code

    assert [put(made["token"], name) for name in ("mine", "other")] == [201, 403]
    new = semel.here("token", "rotate", made["id"], "--overlap", "0s")
    assert [put(token, "mine") for token in (made["token"], new.out.strip())] == [401, 200]
    shown = semel.here("token", "list").out
    assert made["id"] in shown
    assert new.out.strip() not in shown


def test_errors_are_one_sentence_that_says_what_to_do(admin: tuple[Semel, RunningServer], semel: Semel) -> None:
    online, server = admin
    made = online.here("token", "create", "ada", "--json").facts
    assert online.here("token", "revoke", made["id"], "--dry-run", "--json").facts["revoked"] is False
    assert online.here("token", "revoke", made["id"], "--yes").code == 0
    assert "was revoked before, at 20" in told(online.here("token", "revoke", made["id"], "--yes"))
    assert "was revoked at 20" in told(online.here("token", "rotate", made["id"]))
    assert "There is no token 0000000000000000" in told(online.here("token", "revoke", "0" * 16, "--yes"))
    assert "must be some of read, write, work, admin" in told(online.here("token", "create", "x", "--role", "boss"))
    assert "not SURFACE:NAME" in told(online.here("token", "create", "x", "--scope", "mine"))
    assert "such as 90s" in told(online.here("token", "create", "x", "--expires", "soon"))
    assert "give --offline too" in told(online.here("token", "list", "--data", str(server.data)))
    assert "Revoking cannot be undone" in told(online.here("token", "revoke", made["id"]))
    busy = told(online.here("token", "create", "x", "--offline", "--data", str(server.data)))
    assert "is using" in busy
    assert "leave out --offline" in busy
    assert "must be some of" in told(
        semel.here("token", "create", "x", "--role", "boss", "--offline", "--data", str(server.data))
    )
    assert "keeps no token" in told(semel.here("token", "create", "x", "--offline", "--store", "memory:"))


def test_a_restore_tells_which_tokens_count_again(semel: Semel, tmp_path: Path) -> None:
    data, file, target = (str(tmp_path / name) for name in ("data", "file.backup", "restored"))
    made = semel.here("token", "create", "ada", "--offline", "--data", data, "--json").facts
    assert semel.here("backup", file, "--data", data).code == 0
    assert semel.here("token", "revoke", made["id"], "--yes", "--offline", "--data", data).code == 0
    restored = semel.here("restore", file, "--data", target)
    assert "Stored tokens: 1, as they were at 20" in restored.out
    [line] = semel.here("token", "list", "--offline", "--data", target, "--json").out.splitlines()
    assert json.loads(line)["state"] == "active"
    assert semel.here("check", "--data", target).code == 0
    clone(f"sqlite:{target}", f"sqlite:{tmp_path}/copy")
    assert semel.here("token", "list", "--offline", "--data", f"{tmp_path}/copy", "--json").out == line + "\n"

"""Over HTTP: clients that are listed and forgotten, as many as there may be, and a log that is cut by a setting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.deltas.client import Scripted
from tests.deltas.peers import Peers, rows_in
from tests.deltas.wire import LASTING, Deltas, delta, fresh, serving
from tests.harness.together import eventually

KEEP_SECONDS = 1
FEW = 3


def names_of(deltas: Deltas, gateway: str, **query: object) -> list[str]:
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    page = deltas.call("GET", f"/v1/admin/clients/{gateway}?{asked}").body
    return [one["clientId"] for one in page["clients"]]


def test_g3_clients_are_listed_page_by_page_and_forgotten_by_name(deltas: Deltas, gateway: str) -> None:
    peers = Peers(deltas, gateway)
    named = [peers.peer(name) for name in ("ann", 'b"ü', "x" * 100)]
    for peer in named:
        peer.insert(f"row of {peer.name}")
    reader = peers.peer("reader")
    assert len(reader.pull()) == 3
    assert sorted(map(str, names_of(deltas, gateway))) == sorted(["ann", 'b"ü', "None"]), (
        "of a long id the hash is kept"
    )
    found, after = [], None
    while True:
        page = deltas.call("GET", f"/v1/admin/clients/{gateway}?limit=2" + (f"&after={after}" if after else "")).body
        found += page["clients"]
        if not page["hasMore"]:
            break
        after = page["next"]
    assert len(found) == 3
    assert all(one["lastSeenMs"] for one in found)
    path = f"/v1/admin/forget-clients/{gateway}"
    assert deltas.post(path, {"clients": ["ann", "x" * 100, "nobody"]}).body == {"forgotten": 2}
    assert names_of(deltas, gateway) == ['b"ü']
    bad: list[dict[str, list[object]]] = [{}, {"clients": []}, {"clients": [1]}, {"clients": ["x"] * 101}]
    for body in bad:
        assert deltas.call("POST", path, json.dumps(body).encode(), expect=400).code == "VALIDATION_ERROR"
    named[0].insert("back")
    assert set(rows_in(named[0].pull())) >= {'row of b"ü'}


def test_g3_readers_take_no_place_and_a_place_that_is_freed_is_taken(tmp_path: Path, gateway: str) -> None:
    with serving(tmp_path / "data", DELTAS_MAX_CLIENTS=FEW) as deltas:
        peers = Peers(deltas, gateway)
        known = peers.some(FEW)
        for peer in known:
            peer.insert(peer.name)
        for reader in peers.some(2 * FEW):
            assert len(reader.pull()) == FEW
            assert reader.pull() == []
        late = peers.peer()
        one = late.change("INSERT", "late", title="t")
        refused = deltas.push(gateway, [one], client=late.name, expect=429)
        assert refused.code == "RATE_LIMITED"
        for peer in known:
            peer.insert(f"{peer.name} again")
        assert deltas.post(f"/v1/admin/forget-clients/{gateway}", {"clients": [known[0].name]}).body["forgotten"] == 1
        assert deltas.push(gateway, [one], client=late.name)["duplicates"] == 0


@pytest.mark.parametrize("store", LASTING)
def test_g4_a_log_is_cut_behind_the_checkpoint_and_everyone_goes_on(tmp_path: Path, store: str) -> None:
    gateway = fresh("gw")
    data = tmp_path / "data"
    with serving(data, store, DELTAS_KEEP_LOG_SEC=KEEP_SECONDS, SWEEP_INTERVAL_MS=50) as deltas:
        writer, old = (Scripted(deltas, gateway, name) for name in ("writer", "old"))
        writer.insert("kept", title="t")
        writer.insert("gone", title="t")
        writer.push_all()
        old.pull_all()
        sent = list(writer.acknowledged)
        writer.delete("gone")
        writer.update("kept", title="u")
        writer.push_all()
        eventually(lambda: deltas.gauges(gateway)["logSize"] == 0, "the log is cut")
        gauges = deltas.gauges(gateway)
        assert (gauges["indexSize"], gauges["deltaCount"]) == (2, 4)
        for since, name in ((0, "new"), (old.cursor, "old")):
            refused = deltas.pull(gateway, since, client=name, expect=410)
            assert refused.code == "CURSOR_EXPIRED"
            assert "take the checkpoint" in refused.body["error"]
        assert deltas.push(gateway, sent, client="writer")["duplicates"] == 2
        fresh_one = Scripted(deltas, gateway, "fresh")
        for client in (old, fresh_one):
            assert client.take_checkpoint()
            assert client.rows()["todos", "kept"] == {"title": "u"}
            assert ("todos", "gone") not in client.rows()
            client.insert(f"of {client.name}", title="t")
            client.push_all()
        for client in (old, fresh_one, writer):
            assert client.take_checkpoint()
            assert {row for _, row in client.rows()} == {"kept", "of old", "of fresh"}
            assert client.failures == []


def test_g4_the_log_is_kept_by_default(deltas: Deltas, gateway: str) -> None:
    made = delta("INSERT", client="a", hlc=7)
    deltas.push(gateway, [made], client="a")
    assert deltas.log(gateway) == [made]

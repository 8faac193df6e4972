"""Consumer groups and snapshots after a restore: the group goes on from its floor, and leases of before have ended."""

from __future__ import annotations

from typing import Any

import pytest

from tests.epoch.restored import Premises, Writer

GROUP = "/v1/events/groups/g"


def call(writer: Writer, path: str, **body: Any) -> Any:
    return writer.http.post(f"{GROUP}/{path}", json=body).json()


def ids_of(fetched: Any) -> list[int]:
    return [event["committed_id"] for event in fetched["events"]]


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_restored_group_goes_on_from_its_floor(store: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    premises = Premises(store, tmp_path_factory.mktemp("groups"))
    with premises.serving() as writer:
        kept = writer.submit("k1", "k2", "k3")
        definition = {"partitions": ["p"], "lease_ms": 600_000}
        assert writer.http.put(GROUP, json=definition).status_code == 201
        first = call(writer, "fetch", member="m", fetch_id="f1", batch=1)
        call(writer, "ack", lease=first["lease"], committed_ids=kept[:1])
        held = call(writer, "fetch", member="m", fetch_id="f2", batch=1)
    premises.back_up()
    with premises.serving() as writer:
        call(writer, "ack", lease=held["lease"], committed_ids=kept[1:2])
        lost = writer.submit("lost")
        ahead = call(writer, "fetch", member="m", fetch_id="f3")
        assert ids_of(ahead) == [*kept[2:], *lost]
    premises.restore()
    epoch = premises.raise_epoch()
    with premises.serving() as writer:
        for lease, ids in ((held["lease"], kept[1:2]), (ahead["lease"], kept[2:])):
            assert call(writer, "ack", lease=lease, committed_ids=ids)["code"] == "lease_ended"
        new = writer.submit("new")
        again = call(writer, "fetch", member="m", fetch_id="f4")
        assert (ids_of(again), again["log_epoch"]) == ([*kept[1:], *new], epoch)
        assert [event["deliveries"] for event in again["events"]] == [2, 1, 1]
        assert call(writer, "ack", lease=again["lease"], up_to_committed_id=new[0])["acked"] == 3
        refusal = call(writer, "reset", start=lost[0])
        assert (refusal["code"], refusal["details"]["agreed_committed_id"]) == ("reset", kept[-1])
        snapshot = writer.http.put(f"/v1/events/snapshots/p/{lost[0]}", content=b"lost")
        assert (snapshot.status_code, snapshot.json()["code"]) == (410, "reset")

"""What ends gives its share back, whatever ends it; shares outlive kills; nothing is counted while quotas are off."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.engine.storage_meter import STORAGE_NOTE
from semel.server.quotas.shares import QUOTA_SHARE, QUOTA_TOTAL, TABLES
from semel.store.open import open_store
from semel.store.protocol import Range
from semel.surfaces.schema import MIGRATIONS
from semel.surfaces.schema import TABLES as ALL_TABLES
from tests.deltas.vectors import columns, delta, now_ms, stamp
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import eventually
from tests.server.quotas.site import OTHER, Site, file_text, served
from tests.server.quotas.writers import WRITERS, writing

BRIEF = {
    "SEMEL_SWEEP_INTERVAL_MS": "50",
    "SEMEL_STREAMS_IDEMPOTENCY_TTL_MS": "1500",
    "SEMEL_EVENTS_RETENTION_MS": "500",
    "SEMEL_JOBS_RETENTION_SEC": "1",
    "SEMEL_JOBS_IDEMPOTENCY_TTL_SEC": "1",
    "SEMEL_LEDGER_TTL_SEC": "1",
    "SEMEL_LEDGER_EVICTION_INTERVAL": "1",
    "SEMEL_DELTAS_KEEP_LOG_SEC": "1",
}
ROOM = 2_000
PRINCIPALS = {
    "stream": {"stored_bytes": ROOM},
    "front": {"stored_bytes": 200_000},
    "key": {"stored_keys": 3},
    "event": {"stored_keys": 600},
    "snapshot": {"stored_bytes": ROOM},
    "job": {"stored_bytes": ROOM},
    "job-key": {"stored_keys": 3},
    "ledger": {"stored_keys": 3},
    "delta": {"stored_keys": 1},
}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("given")
    store = fresh_url() if request.param == "postgres" else ""
    with served(folder, PRINCIPALS, SEMEL_STORE=store, **BRIEF) as site:
        yield site


def is_stored(answer: httpx.Response) -> bool:
    assert answer.status_code in (200, 201, 204, 429), answer.text
    return answer.status_code != 429


def appended(client: httpx.Client, name: str, size: int, key: str | None = None) -> bool:
    head = {"Content-Type": "text/plain"} | ({} if key is None else {"Idempotency-Key": key})
    return is_stored(client.post(f"/v1/stream/{name}", content=b"x" * size, headers=head))


def test_a_deleted_stream_gives_its_bytes_back(site: Site) -> None:
    with site.client("stream") as client:
        for name in ("gone", "kept"):
            client.put(f"/v1/stream/{name}", headers={"Content-Type": "text/plain"}).raise_for_status()
        assert appended(client, "gone", ROOM - 10)
        assert not appended(client, "kept", 11)
        assert appended(client, "kept", 10)
        client.delete("/v1/stream/gone").raise_for_status()
        eventually(lambda: appended(client, "kept", ROOM - 10), "the content of the other stream is freed")
        assert not appended(client, "kept", 1)


def test_retention_of_a_stream_gives_its_front_back(site: Site) -> None:
    with site.client("front") as client:
        head = {"Content-Type": "text/plain", "Stream-Retention-Bytes": "1000", "Stream-Retention-Age": "1"}
        client.put("/v1/stream/front", headers=head).raise_for_status()
        for _ in range(3):
            assert appended(client, "front", 60_000)
        assert not appended(client, "front", 60_000)
        eventually(lambda: appended(client, "front", 60_000), "the front is freed")


def test_a_key_of_a_stream_is_given_back_when_it_expires(site: Site) -> None:
    with site.client("key") as client:
        client.put("/v1/stream/keyed", headers={"Content-Type": "text/plain"}).raise_for_status()
        assert [appended(client, "keyed", 1, f"k{number}") for number in range(4)] == [True] * 3 + [False]
        assert appended(client, "keyed", 1)
        eventually(lambda: appended(client, "keyed", 1, "k3"), "the first keys have expired")


def test_pruned_events_are_given_back(site: Site) -> None:
    numbers = itertools.count()

    def submit(client: httpx.Client, count: int) -> bool:
        items = [
            {"id": f"given-{next(numbers)}", "partitions": ["given"], "event": {"type": "t", "payload": 1}}
            for _ in range(count)
        ]
        return is_stored(client.post("/v1/events?client_id=event", json={"events": items}))

    with site.client("event") as client:
        filled = [submit(client, 100) for _ in range(6)]
        assert filled[:3] == [True] * 3
        eventually(lambda: submit(client, 100), "old events are pruned")


def test_a_deleted_snapshot_gives_its_bytes_back(site: Site) -> None:
    with site.client("snapshot") as client:
        item = {"id": "for-snapshots", "partitions": ["snap"], "event": {"type": "t", "payload": 1}}
        client.post("/v1/events?client_id=snapshot", json={"events": [item]}).raise_for_status()

        def put(partition: str) -> bool:
            url = f"/v1/events/snapshots/{partition}/1"
            return is_stored(client.put(url, content=b"x" * 1_200, headers={"Content-Type": "text/plain"}))

        assert [put("snap"), put("other")] == [True, False]
        client.delete("/v1/events/snapshots/snap/1").raise_for_status()
        eventually(lambda: put("other"), "the snapshot is deleted")


def test_jobs_give_their_params_and_keys_back_after_their_retention(site: Site) -> None:
    for name, params, limit in (("job", {"pad": "x" * 900}, 2), ("job-key", {}, 3)):
        numbers = itertools.count()

        def submit(client: httpx.Client, name: str = name, params: Any = params, numbers: Any = numbers) -> bool:
            body = {"kind": name, "queue": name, "params": params, "idempotency_key": f"{name}-{next(numbers)}"}
            return is_stored(client.post("/v1/jobs", json=body))

        with site.client(name) as client:
            assert [submit(client) for _ in range(limit + 1)] == [True] * limit + [False]
            for _ in range(limit):
                asked = {"queues": [name], "worker_id": "w"}
                (one,) = client.post("/v1/jobs/claim", json=asked).json()["jobs"]
                report = {"lease_token": one["lease_token"], "result": 1}
                client.post(f"/v1/jobs/{one['job_id']}/complete", json=report).raise_for_status()
            eventually(lambda client=client, submit=submit: submit(client), "jobs and keys are deleted")  # type: ignore[misc]


def test_compacted_blocks_are_given_back(site: Site) -> None:
    with site.client(OTHER) as other, site.client("ledger") as client:
        org = other.post("/ledger/v1/orgs", json={"name": "given"}).json()["slug"]["slug"]
        policy = {"mode": "BLOCK_RETENTION_MODE_COMPACTED", "retentionBlocks": "1"}
        made = other.post(f"/ledger/v1/orgs/{org}/vaults", json={"retentionPolicy": policy}).json()
        url = f"/ledger/v1/orgs/{org}/vaults/{made['vault']['slug']}/writes"
        value = base64.b64encode(b"v").decode()

        def write(who: httpx.Client, name: str, number: int) -> bool:
            put = {"setEntity": {"key": f"{name}{number}", "value": value}}
            body = {"clientId": name, "idempotencyKey": base64.b64encode(b"%016d" % number).decode()}
            return is_stored(who.post(url, json=body | {"operations": [put]}))

        assert [write(client, "ledger", number) for number in range(4)] == [True] * 3 + [False]
        numbers = itertools.count()

        def is_free() -> bool:
            assert write(other, OTHER, next(numbers))
            return write(client, "ledger", 3)

        eventually(is_free, "blocks are compacted")


def test_a_cut_log_of_deltas_gives_its_entries_back(site: Site) -> None:
    def push(minutes_ago: int, row: str) -> bool:
        at = stamp(now_ms() - minutes_ago * 60_000)
        body = {"clientId": "delta", "deltas": [delta("INSERT", columns(a=1), row=row, client="delta", hlc=at)]}
        return is_stored(client.post("/sync/given/push", json=body))

    with site.client("delta") as client, site.client(OTHER) as other:
        assert push(120, "a")
        later = delta("INSERT", columns(a=1), row="b", client=OTHER, hlc=stamp(now_ms() - 60 * 60_000))
        assert is_stored(other.post("/sync/given/push", json={"clientId": OTHER, "deltas": [later]}))
        eventually(lambda: push(1, "c"), "the log is cut")


def counted(folder: Path, url: str) -> dict[str, int]:
    """The rows of the counts in a store that no server uses."""
    store = open_store(url or f"sqlite:{folder}", ALL_TABLES, MIGRATIONS, lambda: 0)
    with closing(store), store.read() as snapshot:
        return {table.name: len(snapshot.range(Range(table, "", (), 10_000))) for table in TABLES}


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("wire", ["streams", "events", "jobs", "ledger", "deltas"])
def test_after_a_kill_the_usage_is_judged_and_replays_are_answered(tmp_path: Path, store: str, wire: str) -> None:
    url = fresh_url() if store == "postgres" else ""
    with served(tmp_path, {"shop": {"stored_keys": 4}}, SEMEL_STORE=url) as site:
        with writing(site, wire, "shop") as writer:
            first = [writer.write(number) for number in range(1, 5)]
            assert None not in [one.told for one in first]
            site.server.kill()
            site.server.start()
            assert [writer.write(number) for number in range(1, 5)] == first
            assert writer.write(5).told is None
            assert writer.stored() == 4
            site.server.kill()
            site.server.start()
            assert writer.write(5).told is None
        if wire == "streams":
            site.server.stop()
            assert counted(tmp_path / "data", url)[QUOTA_TOTAL.name] == 1


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_without_a_quota_of_what_is_stored_no_row_is_written(tmp_path: Path, store: str) -> None:
    url = fresh_url() if store == "postgres" else ""
    with served(tmp_path, {"shop": {"requests_per_second": 10_000}}, SEMEL_STORE=url) as site:
        for wire in WRITERS:
            with writing(site, wire, "shop") as writer:
                assert writer.write(1).told is not None
        with site.client("shop") as client:
            for change in ("PUT", "DELETE"):  # a deletion gives back
                client.request(change, "/v1/events/snapshots/p/1", content=b"x").raise_for_status()
        site.server.stop()
        assert counted(tmp_path / "data", url) == {STORAGE_NOTE.name: 0, QUOTA_SHARE.name: 0, QUOTA_TOTAL.name: 0}
        site.server.start()


def test_quotas_are_taken_and_dropped_with_sighup_and_what_was_counted_goes_with_them(tmp_path: Path) -> None:
    with served(tmp_path, {"shop": {}}, SEMEL_STORE="") as site, writing(site, "streams", "shop") as writer:
        assert [writer.write(number).told is None for number in (1, 2)] == [False, False]
        site.hang_up(file_text({OTHER: {}, "shop": {"stored_keys": 2}}))
        assert [writer.write(number).told is None for number in (3, 4, 5)] == [False, False, True]
        site.hang_up(file_text({OTHER: {}, "shop": {}}))
        assert writer.write(5).told is not None

        def is_dropped() -> bool:
            site.server.stop()
            found = counted(tmp_path / "data", "")
            site.server.start()
            return set(found.values()) == {0}

        eventually(is_dropped, "the counts are dropped", 60)


def test_the_default_of_the_settings_counts_for_every_principal(tmp_path: Path) -> None:
    with served(tmp_path, {"shop": {}, "free": {"stored_keys": 0}}, SEMEL_QUOTA_STORED_KEYS="1") as site:
        for name, second in (("shop", None), ("free", "told")):
            with writing(site, "jobs", name) as writer:
                assert writer.write(1).told is not None
                assert (writer.write(2).told is None) == (second is None)


def test_nodes_see_what_others_have_stored_within_seconds(tmp_path: Path) -> None:
    url = fresh_url()
    with served(tmp_path, {"shop": {"stored_bytes": 1_000_000}}, SEMEL_STORE=url) as site:
        env = {"SEMEL_TOKENS": str(site.file), "SEMEL_STORE": url}
        with RunningServer(tmp_path / "second", env=env) as server, site.client("shop") as here:
            assert appended(here, "s", 1_000_000)
            with Site(server, site.file).client("shop") as there:  # which by itself could store a million such appends
                eventually(lambda: not appended(there, "s", 1), "the other node has read the usage")

"""The published Insieme clients, 2.1.0 and 1.3.0, against a real server: what their applications see.

The clients are npm packages and run in Node.js, each in a process of its own, over real sockets. Where there are two
nodes, the clients of a test are on different ones. A client that reports an error fails its test: an answer that its
store cannot take would send it round and round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.events.insieme.packages import INSTALL_SECONDS
from tests.events.insieme.running import Client
from tests.events.wire import PATH, Events, Message, fresh, item, serving
from tests.harness.server import HOST

# Installing and starting are in the set-up of whichever test comes first.
pytestmark = pytest.mark.timeout(INSTALL_SECONDS + 120)

PAGE = 500
BATCH = 100
MOST_BATCHES = 200
"""During an outage: what is written then must be committed later, and a server may take long to start."""
RECONNECT_SECONDS = 0.7
"""More than the longest rest of a client between two attempts."""
ODD_PAYLOAD = {
    "numbers": [0.1, 1e21, 1e-7, -1.5, 5e-324, 2**53 - 1, 100000000000000000000],
    "text": "caf\u00e9 cafe\u0301 \u2028 \U0001f600 \ue000 \u0001 / \\",
    "keys": {"": 1, "__proto__x": 2, "10": 3, "9": 4, "\U0001f600": 5, "\ue000": 6},
    "rest": [None, True, [], {}, [[]]],
}


def first_url(events: Events) -> str:
    return f"ws://{HOST}:{events.ports[0]}{PATH}"


def last_url(events: Events) -> str:
    """Another node's, if there is one."""
    return f"ws://{HOST}:{events.ports[-1]}{PATH}"


def draft(**fields: Any) -> Message:
    """What an application gives to the 2.1.0 client."""
    given = {"id": fresh("draft"), "partition": "board", "type": "card.moved", "schemaVersion": 1, "payload": {"n": 1}}
    return given | {"clientTs": 1_760_000_000_000} | fields


def old_draft(*partitions: str, **fields: Any) -> Message:
    """What an application gives to the 1.3.0 client."""
    given = {"id": fresh("draft"), "partitions": list(partitions), "type": "card.moved", "payload": {"n": 1}}
    return given | {"meta": {"clientTs": 1_760_000_000_000, "from": "menu"}} | fields


def stored(events: Events, project: str) -> list[Message]:
    """Every event of a project, read without the client."""
    reader = events.camel_2(project, name := fresh("reader"), port=events.ports[0], token=name)
    page = reader.sync(limit=1000)
    found: list[Message] = list(page["events"])
    while page["hasMore"]:
        page = reader.sync(since=page["nextSinceCommittedId"], limit=1000)
        found += page["events"]
    reader.close()
    return found


def fill(events: Events, project: str, count: int) -> list[str]:
    """Commit so many events without the client; their ids, in order."""
    writer = events.camel_2(project, name := fresh("writer"), port=events.ports[0], token=name)
    items = [writer.draft() for _ in range(count)]
    for at in range(0, count, BATCH):
        writer.commit(*items[at : at + BATCH])
    writer.close()
    return [one["id"] for one in items]


# -- 2.1.0 ------------------------------------------------------------------------------------------------------------


def test_a_submit_is_committed_and_reaches_another_client(events: Events) -> None:
    project = fresh("project")
    with (
        Client(first_url(events), fresh("c"), project=project) as writer,
        Client(last_url(events), fresh("c"), project=project) as reader,
    ):
        writer.started()
        reader.started()
        given = draft(payload=ODD_PAYLOAD)
        writer.submit(given)
        result = writer.event("committed", id=given["id"])
        heard = reader.event("broadcast", id=given["id"])
        assert heard["committedId"] == result["committedId"]
        assert heard["serverTs"] == result["serverTs"]
        assert {name: heard[name] for name in ("partition", "type", "schemaVersion", "payload")} == {
            "partition": "board",
            "type": "card.moved",
            "schemaVersion": 1,
            "payload": ODD_PAYLOAD,
        }
        assert heard["meta"] == {"clientId": writer.name, "clientTs": given["clientTs"]}
        # Both get it once more, as a page, and hold it against what they have.
        for client in (writer, reader):
            client.did("sync")
            page = client.event("sync_page")
            assert [event["id"] for event in page["events"]] == [given["id"]]
            client.event("synced")
            assert client.state()["drafts"] == []
        assert writer.of_kind("broadcast") == []


def test_a_retry_gets_the_first_answer_on_any_connection(events: Events) -> None:
    project = fresh("project")
    given = draft()
    with Client(first_url(events), fresh("c"), project=project) as first:
        first.started()
        first.submit(given)
        committed = first.event("committed", id=given["id"])
        first.submit(given)
        assert first.event("committed", id=given["id"]) == committed
    with Client(last_url(events), fresh("c"), project=project) as second:
        second.started()
        second.submit(given)
        assert second.event("committed", id=given["id"]) == committed
    assert [event["committedId"] for event in stored(events, project)] == [committed["committedId"]]


def test_the_same_id_with_other_content_is_rejected_and_the_rest_of_its_batch_comes_again(events: Events) -> None:
    project = fresh("project")
    taken, before, after = draft(payload={"n": 1}), draft(), draft()
    with Client(first_url(events), fresh("c"), project=project) as client:
        client.started()
        client.submit(taken)
        client.event("committed", id=taken["id"])
        client.submit(before, taken | {"payload": {"n": 2}}, after)
        client.event("committed", id=before["id"])
        rejected = client.event("rejected", id=taken["id"])
        assert rejected["reason"] == "validation_failed"
        assert rejected["errors"][0]["message"]
        assert client.event("not_processed", id=after["id"])["blockedById"] == taken["id"]
        client.event("committed", id=after["id"])
        assert client.state()["drafts"] == []
    assert [event["id"] for event in stored(events, project)] == [taken["id"], before["id"], after["id"]]
    assert stored(events, project)[0]["payload"] == {"n": 1}


def test_what_was_written_offline_is_committed_in_its_order(events: Events, tmp_path: Path) -> None:
    project = fresh("project")
    drafts = [draft(payload={"n": number}) for number in range(120)]
    name, data = fresh("c"), tmp_path / "client.db"
    with Client(first_url(events), name, project=project, data=data) as offline:
        offline.submit(*drafts)
        assert len(offline.state()["drafts"]) == len(drafts)
    with Client(last_url(events), name, project=project, data=data) as online:
        online.started()
        results = online.results("committed", [one["id"] for one in drafts])
        assert online.state()["drafts"] == []
    numbers = [results[one["id"]]["committedId"] for one in drafts]
    assert numbers == sorted(set(numbers))
    assert [event["id"] for event in stored(events, project)] == [one["id"] for one in drafts]


def test_a_client_that_was_away_reads_only_what_is_new(events: Events, tmp_path: Path) -> None:
    project = fresh("project")
    name, data = fresh("c"), tmp_path / "client.db"
    old = fill(events, project, 2 * PAGE + BATCH)
    with Client(first_url(events), name, project=project, data=data) as client:
        client.started()
        pages = [len(page["events"]) for page in client.of_kind("sync_page")]
        assert pages == [PAGE, PAGE, BATCH]
        assert [event["id"] for event in client.state()["committed"]] == old
    new = fill(events, project, 3)
    with Client(last_url(events), name, project=project, data=data) as client:
        client.started()
        assert [event["id"] for page in client.of_kind("sync_page") for event in page["events"]] == new
        assert [event["id"] for event in client.state()["committed"]] == old + new


def test_what_is_committed_while_a_client_pages_comes_after_the_last_page(events: Events) -> None:
    project = fresh("project")
    old = fill(events, project, 2 * PAGE - 1)
    new: list[str] = []
    with Client(last_url(events), fresh("c"), project=project, gate=True) as client:
        client.did("start")
        for size in (PAGE, PAGE, 1):
            client.event("held")
            new += fill(events, project, 2)
            client.did("pass")
            assert len(client.event("sync_page")["events"]) == size
        client.event("synced")
        new += fill(events, project, 2)
        # The first two were committed before the first sync, so they are in its pages.
        heard = new[2:]
        assert [client.event("broadcast")["id"] for _ in heard] == heard
        assert [event["id"] for event in client.state()["committed"]] == old + new


def test_events_of_the_other_dialects_can_be_kept(events: Events, tmp_path: Path) -> None:
    project = fresh("project")
    shapes: list[dict[str, Any]] = [
        {"type": "t"},
        {"type": "t", "payload": None},
        {"type": "t", "payload": [1, 2]},
        {"type": "t", "payload": {"a": {"b": 1}}, "schemaVersion": 7, "partition": "side"},
        {"type": "t", "payload": "text", "schemaVersion": -1, "meta": "none", "partition": 4},
    ]
    writer = events.peer(port=events.ports[0])
    with Client(last_url(events), fresh("c"), project=project, data=tmp_path / "client.db") as client:
        client.started()
        items = [item([project, "elsewhere"], shape) for shape in shapes]
        writer.commit(*items)
        heard = [client.event("broadcast") for _ in items]
        client.did("sync")
        page = client.event("sync_page")
        client.event("synced")
        assert page["events"] == heard
        assert [event["id"] for event in heard] == [one["id"] for one in items]
        assert {event["projectId"] for event in heard} == {project}
        assert [event["partition"] for event in heard[:4]] == [project, project, project, "side"]
        assert [event["schemaVersion"] for event in heard] == [1, 1, 1, 7, 1]
        assert heard[2]["payload"] == {"value": [1, 2]}
        assert heard[3]["payload"] == {"a": {"b": 1}}
    writer.close()


# -- A server that goes away ------------------------------------------------------------------------------------------


def write_while(client: Client, outage: Callable[[], None]) -> list[str]:
    """Submit without a pause before, during and after an outage; the ids in their order."""
    written: list[str] = []

    def write(batches: int) -> None:
        for _ in range(batches):
            some = [draft() for _ in range(5)]
            client.submit(*some)
            written.extend(one["id"] for one in some)

    write(20)
    happening = threading.Thread(target=outage)
    happening.start()
    for _ in range(MOST_BATCHES):
        if not happening.is_alive():
            break
        write(1)
        happening.join(0.01)
    happening.join()
    write(20)
    return written


@pytest.mark.each_store
def test_a_restart_in_the_middle_loses_and_doubles_nothing(tmp_path: Path, store_kind: str) -> None:
    project = fresh("project")
    with serving(tmp_path / "data", store=store_kind) as events:
        # What the client sends before it has noticed the end of its connection fails in its own hands.
        expected = ["transport_disconnected", "server_error"]
        client = Client(first_url(events), fresh("c"), project=project, reconnect=True, expected_errors=expected)
        with client:
            client.started()
            written = write_while(client, events.server.restart)
            state = client.state_when(lambda found: not found["drafts"], "every draft is committed")
            assert client.of_kind("error")
            assert len(client.of_kind("connected")) > 1
            found = stored(events, project)
            assert [event["id"] for event in found] == written
            assert [event["committedId"] for event in found] == [one["committedId"] for one in state["committed"]]


@pytest.mark.each_store
def test_a_crash_in_the_middle_loses_and_doubles_nothing(tmp_path: Path, store_kind: str) -> None:
    project = fresh("project")
    # The client notices a connection that was cut at its next send, which a batch under way keeps it from: its
    # application starts it again.
    expected = ["transport_disconnected", "server_error"]
    with serving(tmp_path / "data", store=store_kind, clean=False) as events:

        def crash() -> None:
            events.server.kill()
            events.server.start()

        client = Client(first_url(events), fresh("c"), project=project, reconnect=True, expected_errors=expected)
        with client:
            client.started()
            written = write_while(client, crash)
            client.did("stop")
            # An attempt that it rests before would go on after a quick start, and say `connect` a second time.
            time.sleep(RECONNECT_SECONDS)
            client.state()
            client.did("start")
            state = client.state_when(lambda found: not found["drafts"], "every draft is committed")
            found = stored(events, project)
            assert [event["id"] for event in found] == written
            assert [event["committedId"] for event in found] == [one["committedId"] for one in state["committed"]]


# -- 1.3.0 ------------------------------------------------------------------------------------------------------------


def test_the_old_client_submits_retries_and_is_refused_like_the_new_one(events: Events) -> None:
    name = fresh("p")
    given = old_draft(name, fresh("other"), payload=ODD_PAYLOAD, projectId="free text", userId="u-1")
    with (
        Client(first_url(events), fresh("c"), release="1.3.0", partitions=[name]) as writer,
        Client(last_url(events), fresh("c"), release="1.3.0", partitions=[name]) as reader,
    ):
        writer.started()
        reader.started()
        writer.submit(given)
        committed = writer.event("committed", id=given["id"])
        heard = reader.event("broadcast", id=given["id"])
        assert (heard["committedId"], heard["created"]) == (committed["committedId"], committed["created"])
        assert heard["partitions"] == sorted(given["partitions"])
        assert heard["payload"] == ODD_PAYLOAD
        assert heard["meta"] == {"clientId": writer.name, "clientTs": 1_760_000_000_000, "from": "menu"}
        assert (heard["projectId"], heard["userId"]) == ("free text", "u-1")
        writer.submit(given)
        assert writer.event("committed", id=given["id"]) == committed
        writer.submit(given | {"payload": {"n": 2}})
        assert writer.event("rejected", id=given["id"])["reason"] == "validation_failed"
        # Both get it once more, as a page, and hold it against what they have.
        for client in (writer, reader):
            client.did("sync")
            assert [event["id"] for event in client.event("sync_page")["events"]] == [given["id"]]
            client.event("synced")
            assert client.state()["drafts"] == []


def test_the_old_client_sends_its_whole_outbox_at_once_and_pages_back_through_it(
    events: Events, tmp_path: Path
) -> None:
    name, second = fresh("p"), fresh("p")
    drafts = [old_draft(name, payload={"n": number}) for number in range(PAGE + 101)]
    writer = Client(first_url(events), fresh("c"), release="1.3.0", partitions=[name], data=tmp_path / "client.db")
    with writer:
        writer.submit(*drafts)
        writer.started()
        results = writer.results("committed", [one["id"] for one in drafts])
        numbers = [results[one["id"]]["committedId"] for one in drafts]
        assert numbers == sorted(set(numbers))
        apart = old_draft(second)
        writer.submit(apart)
        writer.event("committed", id=apart["id"])
    with Client(last_url(events), fresh("c"), release="1.3.0", partitions=[name]) as reader:
        reader.started()
        assert [len(page["events"]) for page in reader.of_kind("sync_page")] == [PAGE, 101]
        reader.did("partitions", names=[second, name], since=0)
        while reader.event("sync_page")["hasMore"]:
            pass
        assert [event["id"] for event in reader.state()["committed"]] == [one["id"] for one in [*drafts, apart]]


def test_old_and_new_clients_hear_one_another(events: Events) -> None:
    project = fresh("project")
    with (
        Client(first_url(events), fresh("c"), release="1.3.0", partitions=[project]) as old,
        Client(last_url(events), fresh("c"), project=project) as new,
    ):
        old.started()
        new.started()
        from_old, from_new = old_draft(project, payload=ODD_PAYLOAD), draft(payload=ODD_PAYLOAD)
        old.submit(from_old)
        assert new.event("broadcast", id=from_old["id"])["payload"] == ODD_PAYLOAD
        new.submit(from_new)
        assert old.event("broadcast", id=from_new["id"])["payload"] == ODD_PAYLOAD
        for client in (old, new):
            client.did("sync")
            page = client.event("sync_page")
            assert [event["id"] for event in page["events"]] == [from_old["id"], from_new["id"]]
            client.event("synced")

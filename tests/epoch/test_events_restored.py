"""Events after a restore: a cursor of the lost future is told to reset on every wire and in every dialect."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

import httpx
import pytest

from tests.cli.command import Semel
from tests.epoch.conftest import Restored
from tests.epoch.restored import Writer
from tests.events.wire import Camel, Peer

IDS_A_MS = 1_000
Lines = Generator[str, None, None]


def told(restored: Restored, agreed: int | None = None) -> dict[str, int]:
    """What a reset says."""
    last = restored.held.kept_ids[-1] if agreed is None else agreed
    return {"log_epoch": restored.epoch, "agreed_committed_id": last}


def lost_cursors(restored: Restored) -> list[int]:
    """Every position that the lost future gave out, and the borders of what it can have given out."""
    last, first = restored.held.kept_ids[-1], restored.new_ids[0] - 1
    return [*restored.held.lost_ids, last + 1, first - 1]


@contextmanager
def seed(writer: Writer) -> Iterator[tuple[Peer, dict[str, Any]]]:
    with Peer(writer.port) as peer:
        yield peer, peer.connect()


def page_ids(page: dict[str, Any]) -> list[int]:
    return [event["committed_id"] for event in page["events"]]


def test_c_epoch_the_epoch_is_told_in_connected_pages_and_get(restored: Restored) -> None:
    writer = restored.writer
    with seed(writer) as (peer, connected):
        assert connected["log_epoch"] == restored.epoch
        assert peer.sync(["p"])["log_epoch"] == restored.epoch
    assert writer.events(0).json()["log_epoch"] == restored.epoch


def test_c_epoch_ids_go_on_above_everything_that_was_lost(restored: Restored) -> None:
    held = restored.held
    first = restored.new_ids[0]
    assert restored.new_ids == list(range(first, first + 4))
    assert first - 1 >= restored.epoch * IDS_A_MS > max(held.lost_ids)
    assert restored.writer.submit("kept-1", "kept-2") == held.kept_ids


def test_c_epoch_a_lost_cursor_is_told_over_websocket(restored: Restored) -> None:
    with seed(restored.writer) as (peer, _):
        for since in lost_cursors(restored):
            answer = peer.ask("sync", {"partitions": ["p"], "since_committed_id": since})
            assert (answer["type"], answer["payload"]) == ("reset", told(restored)), since
        assert page_ids(peer.sync(["p"], told(restored)["agreed_committed_id"])) == restored.new_ids


def test_c_epoch_a_cursor_that_names_another_epoch_is_told_over_websocket(restored: Restored) -> None:
    kept = restored.held.kept_ids
    with seed(restored.writer) as (peer, _):
        for since, epoch, agreed in (
            (restored.held.lost_ids[-1], 0, kept[-1]),
            (kept[0], 0, kept[0]),
            (restored.new_ids[-1], 0, kept[-1]),
            (restored.new_ids[-1], restored.epoch - 1, 0),
            (restored.new_ids[-1], restored.epoch + 1, 0),
        ):
            asked = {"partitions": ["p"], "since_committed_id": since, "log_epoch": epoch}
            answer = peer.ask("sync", asked)
            assert (answer["type"], answer["payload"]) == ("reset", told(restored, agreed)), (since, epoch)
        for payload in ("1", -1, 1.5, True):
            asked = {"partitions": ["p"], "since_committed_id": 1, "log_epoch": payload}
            assert peer.error("sync", asked)["code"] == "bad_request"
        asked = {"partitions": ["p"], "since_committed_id": kept[0], "log_epoch": restored.epoch}
        page = peer.ask("sync", asked)["payload"]
        assert page_ids(page) == [*kept[1:], *restored.new_ids]


def test_c_epoch_a_reset_leaves_what_is_sent_live_as_it_was(restored: Restored) -> None:
    with seed(restored.writer) as (peer, _):
        peer.subscribe("q")
        asked = {"partitions": ["p"], "since_committed_id": restored.held.lost_ids[0], "subscription_partitions": ["p"]}
        assert peer.ask("sync", asked)["type"] == "reset"
        event = {"id": f"live-{restored.epoch}", "partitions": ["q"], "event": {"type": "t"}}
        assert restored.writer.http.post("/v1/events", json={"events": [event]}).status_code == 200
        assert [one["id"] for one in peer.broadcasts(1)] == [event["id"]]


@pytest.mark.parametrize("project", ["", "p"], ids=["1.3", "2.x"])
def test_c_epoch_a_lost_cursor_is_told_to_published_clients(restored: Restored, project: str) -> None:
    with Camel(restored.writer.port, "", project) as peer:
        peer.connect()
        scope = {"projectId": project} if project else {"partitions": ["p"]}
        for since in lost_cursors(restored):
            refusal = peer.error("sync", scope | {"sinceCommittedId": since})
            assert refusal["code"] == "reset", since
            agreed = {"logEpoch": restored.epoch, "agreedCommittedId": restored.held.kept_ids[-1]}
            assert refusal["details"] == agreed
        page = peer.sync(["p"], restored.held.kept_ids[-1])
        assert [event["committedId"] for event in page["events"]] == restored.new_ids


def test_c_epoch_a_lost_cursor_is_told_over_http(restored: Restored) -> None:
    writer = restored.writer
    for since in lost_cursors(restored):
        answer = writer.events(since)
        problem = answer.json()
        assert (answer.status_code, problem["code"], problem["details"]) == (410, "reset", told(restored)), since
        assert f"go on from {restored.held.kept_ids[-1]}," in problem["detail"]
    named = writer.events(restored.new_ids[-1], log_epoch=0)
    assert (named.status_code, named.json()["details"]) == (410, told(restored))
    assert writer.events(1, log_epoch="x").status_code == 400
    assert writer.events(restored.new_ids[-2], log_epoch=restored.epoch).status_code == 200


def test_c_epoch_a_position_to_read_backwards_from_is_told_alike(restored: Restored) -> None:
    writer, kept, new = restored.writer, restored.held.kept_ids, restored.new_ids

    def backwards(**query: int) -> httpx.Response:
        return writer.http.get("/v1/events", params={"partition": "p", "order": "desc", **query})

    for cursor in lost_cursors(restored):
        answer = backwards(before=cursor + 1)
        assert (answer.status_code, answer.json()["details"]) == (410, told(restored)), cursor
    assert backwards(before=new[-1], log_epoch=0).status_code == 410
    for query, ids in (
        ({}, [*new[::-1], *kept[::-1]]),
        ({"before": new[0]}, kept[::-1]),
        ({"before": new[1], "log_epoch": restored.epoch}, [new[0], *kept[::-1]]),
        ({"before": kept[-1] + 1}, kept[::-1]),
        ({"before": kept[-1]}, kept[-2::-1]),
    ):
        answer = backwards(**query)
        assert (answer.status_code, page_ids(answer.json())) == (200, ids), query


def test_c_epoch_a_watermark_of_the_lost_future_is_a_mismatch(restored: Restored) -> None:
    writer, room = restored.writer, f"room-{restored.epoch}"
    draft = {"id": f"after-{restored.epoch}", "partitions": [room], "event": {"type": "t"}}

    def submitted(expected: int) -> dict[str, Any]:
        answer = writer.http.post("/v1/events", json={"events": [draft | {"if_watermark": expected}]})
        [result] = answer.json()["results"]
        assert isinstance(result, dict)
        return result

    refused = submitted(restored.held.lost_ids[-1])
    assert (refused["reason"], refused["watermark"]) == ("watermark_mismatch", 0)
    assert submitted(0)["committed_id"] > restored.new_ids[-1]


def test_c_epoch_cursors_of_the_agreed_history_and_of_the_new_one_read_on(restored: Restored) -> None:
    writer, kept, new = restored.writer, restored.held.kept_ids, restored.new_ids
    for since, ids in (
        (0, [*kept, *new]),
        (kept[0], [*kept[1:], *new]),
        (kept[-1], new),
        (new[0] - 1, new),
        (new[0], new[1:]),
    ):
        answer = writer.events(since)
        assert (answer.status_code, page_ids(answer.json())) == (200, ids), since


def stream(writer: Writer, since: int, headers: dict[str, str] | None = None, **query: Any) -> Lines:
    asked = {"partition": "p", "since": since, **query}
    accept = {"Accept": "text/event-stream"} | (headers or {})
    with writer.http.stream("GET", "/v1/events", params=asked, headers=accept) as answer:
        assert answer.status_code == 200
        yield from answer.iter_lines()


def whole(lines: Lines) -> list[str]:
    """All lines of a stream that ends; one that goes on has more than these."""
    with closing(lines):
        return list(islice(lines, 6))


def first_ids(lines: Iterator[str], count: int) -> list[int]:
    ids = []
    for line in lines:
        if line.startswith("id: "):
            ids.append(int(line[4:]))
            if len(ids) == count:
                break
    return ids


def test_c_epoch_a_lost_cursor_is_told_in_an_event_stream_which_then_ends(restored: Restored) -> None:
    writer, agreed = restored.writer, restored.held.kept_ids[-1]
    frame = [f"id: {agreed}", "event: reset", f"data: {json.dumps(told(restored), separators=(',', ':'))}", ""]
    for since in lost_cursors(restored):
        assert whole(stream(writer, since)) == frame, since
        assert whole(stream(writer, 0, {"Last-Event-ID": str(since)})) == frame, since
    assert whole(stream(writer, restored.new_ids[-1], log_epoch=0)) == frame


def test_c_epoch_a_browser_that_comes_again_goes_on_where_both_histories_agree(restored: Restored) -> None:
    # It sends the id of the last event, the reset, and the URL that it was given once.
    writer = restored.writer
    lines = stream(writer, restored.held.lost_ids[0], {"Last-Event-ID": str(restored.held.kept_ids[-1])}, log_epoch=0)
    assert first_ids(lines, 4) == restored.new_ids


def test_c_epoch_commands_say_where_to_go_on(restored: Restored) -> None:
    semel, held = Semel(restored.writer.url), restored.held
    read = semel.here("events", "read", "--partition", "p", "--since", str(held.lost_ids[0]))
    assert (read.code, read.raw) == (1, b"")
    assert f"continue with --since {held.kept_ids[-1]}." in read.err
    tail = semel.here("events", "tail", "--partition", "p", "--since", str(held.lost_ids[0]))
    assert (tail.code, tail.raw) == (1, b"")
    assert f"continue with --since {held.kept_ids[-1]}." in tail.err
    rest = semel.here("events", "read", "--partition", "p", "--since", str(held.kept_ids[-1]))
    assert [json.loads(line)["committed_id"] for line in rest.out.splitlines()] == restored.new_ids


def test_c_epoch_a_cursor_above_the_log_is_counted_and_a_reset_too(restored: Restored) -> None:
    writer = restored.writer
    before = counts(writer.http)
    assert writer.events(restored.new_ids[-1] + 1_000).status_code == 200
    assert writer.events(restored.held.lost_ids[0]).status_code == 410
    after = counts(writer.http)
    assert {name: after[name] - before[name] for name in after} == {"cursors_ahead": 1, "resets": 1}
    assert writer.events(2**53 - 1).status_code == 200, "the end of the log is asked for"
    assert counts(writer.http) == after


def counts(http: httpx.Client) -> dict[str, float]:
    found = http.get("/metrics").json()
    return {name: found[f"semel_events_{name}_total"] for name in ("cursors_ahead", "resets")}

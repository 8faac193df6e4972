"""Streams after a restore: an offset of the lost future is refused in every mode, and says where to read on."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.cli.command import Semel
from tests.epoch.conftest import Restored
from tests.epoch.restored import TEXT, Writer

MODES: tuple[dict[str, str], ...] = ({}, {"live": "long-poll"}, {"live": "sse"})
START = "0000000000000000_0000000000000000"


def read_on(writer: Writer, name: str, offset: str) -> str:
    """All content from an offset on, as a reader that obeys gets it: page after page."""
    content = ""
    for _ in range(100):
        page = writer.read(name, offset)
        if page.status_code == 410:
            offset = page.headers["Stream-Next-Offset"]
            continue
        assert page.status_code == 200, page.text
        content, offset = content + page.text, page.headers["Stream-Next-Offset"]
        if page.headers.get("Stream-Up-To-Date") == "true":
            return content
    raise AssertionError("there is no end")


@pytest.mark.parametrize("mode", MODES, ids=["catch-up", "long-poll", "sse"])
def test_c_epoch_a_lost_offset_is_refused_in_every_mode(restored: Restored, mode: dict[str, str]) -> None:
    writer, held = restored.writer, restored.held
    for name, offset in [*(("log", one) for one in held.lost_offsets), ("idle", held.idle_offset)]:
        answer = writer.read(name, offset, **mode)
        assert (answer.status_code, answer.json()["code"]) == (410, "STREAM_GONE"), (name, offset, answer.text)
        assert answer.headers["Stream-Next-Offset"] == held.kept_offset
        assert held.kept_offset in answer.json()["detail"]


@pytest.mark.parametrize("mode", MODES, ids=["catch-up", "long-poll", "sse"])
def test_c_epoch_an_offset_of_a_stream_made_in_the_lost_future_is_refused(
    restored: Restored, mode: dict[str, str]
) -> None:
    answer = restored.writer.read("born", restored.held.born_offset, **mode)
    assert (answer.status_code, answer.json()["code"]) == (410, "STREAM_GONE")
    assert answer.headers["Stream-Next-Offset"] == f"{restored.epoch:016d}_{0:016d}"
    assert read_on(restored.writer, "born", restored.held.born_offset) == "dddd"


def test_c_epoch_offsets_of_the_agreed_history_read_on_and_nothing_new_is_skipped(restored: Restored) -> None:
    writer, held = restored.writer, restored.held
    assert read_on(writer, "log", "-1") == read_on(writer, "log", START) == "aaaaddddeeeeffff"
    assert writer.read("log", held.kept_offset).text == "ddddeeeeffff"
    assert writer.read("idle", held.kept_offset).headers["Stream-Next-Offset"] == held.kept_offset
    for offset in held.lost_offsets:
        assert read_on(writer, "log", offset) == "ddddeeeeffff"
    within = "0000000000000000_0000000000000002"
    assert writer.read("log", within).status_code == 200


def test_c_epoch_offsets_rise_and_are_the_same_wherever_they_are_told(restored: Restored) -> None:
    writer, held = restored.writer, restored.held
    tail = writer.http.head("/v1/stream/log").headers["Stream-Next-Offset"]
    assert tail == f"{restored.epoch:016d}_{16:016d}" > max(held.lost_offsets)
    listed = {one["name"]: one["next_offset"] for one in writer.http.get("/v1/streams").json()["streams"]}
    assert (listed["log"], listed["idle"]) == (tail, held.kept_offset)
    assert writer.read("log", "now").headers["Stream-Next-Offset"] == tail
    live = writer.read("log", tail, live="sse").text
    assert json.loads(live.split("data:", 1)[1].split("\n", 1)[0])["streamNextOffset"] == tail
    created = writer.http.put("/v1/stream/log", headers=TEXT)
    assert (created.status_code, created.headers["Stream-Next-Offset"]) == (200, tail)


def test_c_epoch_a_replay_tells_the_offset_of_its_time(restored: Restored) -> None:
    writer, held = restored.writer, restored.held
    assert writer.append("log", "aaaa", "kept") == held.kept_offset
    first = writer.append("born", "gggg", "new")
    assert writer.append("born", "gggg", "new") == first == f"{restored.epoch:016d}_{8:016d}"


def test_c_epoch_a_tag_of_lost_content_does_not_match_the_new_one(restored: Restored) -> None:
    # Both pages have the same life, the same ends and the same size.
    writer, held = restored.writer, restored.held
    answer = writer.http.get("/v1/stream/log", params={"offset": "-1"}, headers={"If-None-Match": held.lost_tag})
    assert (answer.status_code, answer.text) == (200, "aaaaddddeeeeffff")
    known = answer.headers["ETag"]
    assert known.startswith(held.lost_tag.removesuffix('"'))
    again = writer.http.get("/v1/stream/log", params={"offset": "-1"}, headers={"If-None-Match": known})
    assert again.status_code == 304


def test_c_epoch_what_was_never_given_out_is_beyond_the_tail_as_before(restored: Restored) -> None:
    writer = restored.writer
    tail = writer.http.head("/v1/stream/log").headers["Stream-Next-Offset"]
    for offset in ("9999999999999999_9999999999999999", f"{restored.epoch:016d}_{9_999:016d}"):
        answer = writer.read("log", offset)
        assert (answer.status_code, answer.text, answer.headers["Stream-Next-Offset"]) == (200, "", tail)


def test_c_epoch_commands_say_where_to_read_on(restored: Restored) -> None:
    semel, held = Semel(restored.writer.url), restored.held
    for command in ("read", "tail"):
        run = semel.here("streams", command, "log", "--offset", held.lost_offsets[0])
        assert (run.code, run.raw) == (1, b""), command
        assert f"read on from {held.kept_offset}." in run.err, command
    run = semel.here("streams", "read", "log", "--offset", held.kept_offset)
    assert (run.code, run.raw) == (0, b"ddddeeeeffff")


def test_c_epoch_a_closed_stream_tells_its_end_in_the_epoch_of_its_content(restored: Restored) -> None:
    writer, held = restored.writer, restored.held
    writer.create("shut")
    tail = writer.append("shut", "aaaa")
    close = {"Stream-Closed": "true"}
    assert writer.http.post("/v1/stream/shut", headers=close).headers["Stream-Next-Offset"] == tail
    late = writer.http.post("/v1/stream/shut", content="x", headers=TEXT)
    assert (late.status_code, late.headers["Stream-Next-Offset"]) == (409, tail)
    idle: httpx.Response = writer.http.post("/v1/stream/idle", headers=close)
    assert idle.headers["Stream-Next-Offset"] == held.kept_offset

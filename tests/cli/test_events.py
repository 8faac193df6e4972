"""submit, read and tail of events, against a real server, as a script uses them."""

from __future__ import annotations

import json
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.command import SECONDS, Finished, Semel
from tests.cli.scripted import Line, scripted
from tests.harness.server import RunningServer
from tests.harness.together import eventually

NOTE = '{"type": "note.added", "payload": {"text": "hi"}}'
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
RESUME = "Earlier lines are done: run this again with --id {}, and no event is committed twice.\n"


def submitted(semel: Semel, *args: str, stdin: bytes = b"") -> dict[str, Any]:
    return semel.here("events", "submit", "--json", *args, stdin=stdin).facts


def listed(semel: Semel, *partitions: str, args: tuple[str, ...] = ("--all",)) -> list[dict[str, Any]]:
    named = [word for name in partitions for word in ("--partition", name)]
    run = semel.here("events", "read", *named, *args)
    assert run.code == 0, run.err
    return objects(run)


def objects(run: Finished) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.out.splitlines()]


def refused(run: Finished, sentence: str, code: int = 1) -> None:
    assert (run.code, run.raw) == (code, b"")
    assert sentence in run.err


def test_submit_says_where_it_stands(semel: Semel) -> None:
    first = semel.here("events", "submit", "said", "--event", NOTE, "--id", "said-1")
    again = semel.here("events", "submit", "said", "--event", NOTE, "--id", "said-1")
    assert (first.code, first.err) == (0, "")
    assert re.fullmatch(r"Committed said-1 as \d+ \(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\)\n", first.out)
    assert again.out == first.out
    facts = submitted(semel, "said", "--event", NOTE, "--id", "said-1")
    assert (facts["id"], facts["status"]) == ("said-1", "committed")
    assert f"as {facts['committed_id']} (" in first.out
    assert len(listed(semel, "said")) == 1


def test_submit_makes_ids_and_takes_several_partitions(semel: Semel) -> None:
    one = submitted(semel, "made-a", "made-b", "--event", NOTE, "--client-id", "till-3")
    two = submitted(semel, "made-b", "--event", "-", stdin=NOTE.encode())
    assert UUID7.fullmatch(one["id"])
    assert one["id"] < two["id"]
    assert one["committed_id"] < two["committed_id"]
    first, second = listed(semel, "made-a", "made-b")
    assert first == {
        "id": one["id"],
        "client_id": "till-3",
        "partitions": ["made-a", "made-b"],
        "committed_id": one["committed_id"],
        "event": json.loads(NOTE),
        "status_updated_at": one["status_updated_at"],
    }
    assert (second["id"], second["client_id"]) == (two["id"], "default")
    assert [one["id"] for one in listed(semel, "made-a")] == [first["id"]]


def test_submit_from_a_file(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "event.json").write_text('{\n  "type": "note.added",\n  "big": 12345678901234567000, "one": 1.0\n}\n')
    submitted(semel, "file", "--file", str(tmp_path / "event.json"), "--id", "file-1")
    assert listed(semel, "file")[0]["event"] == {"type": "note.added", "big": 12345678901234567000, "one": 1.0}


def test_a_rejection_is_told_with_its_reason(semel: Semel) -> None:
    submitted(semel, "taken", "--event", NOTE, "--id", "taken-1")
    taken = semel.here("events", "submit", "taken", "--event", '{"type": "other"}', "--id", "taken-1")
    flaw = "event: id taken-1 is already committed with other content"
    assert (taken.code, taken.out) == (1, "")
    assert taken.err == f"Error: The event taken-1 was rejected: {flaw} [validation_failed]\n"
    told = semel.here("events", "submit", "taken", "--event", '{"type": "other"}', "--id", "taken-1", "--json")
    assert (told.code, told.err) == (1, taken.err)
    assert json.loads(told.raw)["status"] == "rejected"
    assert len(listed(semel, "taken")) == 1


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["p", "--event", "not json"], "The text is not JSON"),
        (["p", "--event", "[1]"], "An event must be a JSON object."),
        (["p", "--event", '{"type": "t", "type": "t"}'], "The name 'type' occurs twice in one object."),
        (["p", "--event", '{"type": "t", "n": NaN}'], "NaN"),
        (["p", "--event", '{"a":' * 80 + "1" + "}" * 80], "The value is nested more than 64 levels deep."),
        (["p", "--event", "{}"], "event.type: must be a non-empty string [validation_failed]"),
        (["", "--event", NOTE], "partitions: the name of a partition is empty [validation_failed]"),
        (["\udcff", "--event", NOTE], "half of a surrogate pair [validation_failed]"),
        (["p", "--event", NOTE, "--id", ""], "id must be a non-empty string [bad_request]"),
        (["p", "--file", "-"], "The text is not JSON"),
    ],
    ids=lambda value: " ".join(value)[:40].encode("ascii", "replace").decode() if isinstance(value, list) else "",
)
def test_what_cannot_be_committed_is_one_sentence(semel: Semel, args: list[str], sentence: str) -> None:
    run = semel.here("events", "submit", *args)
    refused(run, sentence)
    assert run.err.count("\n") == 1
    assert listed(semel, "p") == []


LINES = "".join(f'{{"type": "line", "n": {number}}}\n' for number in range(1, 251))


def test_lines_go_in_batches_and_twice_gives_no_doubles(semel: Semel, server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(LINES)
    import_it = ("events", "submit", "lines", "--file", str(tmp_path / "lines"), "--lines", "--id", "import")
    first, again = semel.here(*import_it, "--json"), semel.here(*import_it, "--json")
    assert (first.code, first.err, first.raw == again.raw) == (0, "", True)
    results = objects(first)
    assert [(one["line"], one["id"]) for one in results] == [(number, f"import-{number}") for number in range(1, 251)]
    ids = [one["committed_id"] for one in results]
    assert ids == sorted(set(ids))
    shown = semel.here(*import_it)
    assert shown.out == f"Committed 250 events, up to committed_id {ids[-1]} (--id import)\n"
    events = listed(semel, "lines")
    assert [one["event"]["n"] for one in events] == list(range(1, 251))
    assert [one["committed_id"] for one in events] == ids
    smaller = semel.here(*import_it, "--batch", "7")
    assert smaller.raw == shown.raw


def test_batches_are_small_enough_for_the_server(semel: Semel) -> None:
    line = json.dumps({"type": "large", "text": "x" * 300_000}).encode() + b"\n"
    run = semel.here("events", "submit", "large", "--lines", "--id", "large", stdin=line * 5)
    assert run.out.startswith("Committed 5 events, ")
    events = listed(semel, "large")  # about three of these make a page
    assert [one["id"] for one in events] == [f"large-{number}" for number in range(1, 6)]
    limited = semel.here("events", "read", "--partition", "large", "--limit", "4")
    assert len(limited.out.splitlines()) == 4
    follow_up = f"--since {events[3]['committed_id']}"
    assert limited.err == f"There are more: continue with {follow_up}, or give --all.\n"
    over = semel.here("events", "submit", "large", "--event", "-", stdin=line * 1)
    assert over.code == 0
    refused(
        semel.here("events", "submit", "large", "--event", "-", stdin=b'{"type": "' + b"x" * 1_048_576 + b'"}'),
        "a body may have at most 1048576 bytes [bad_request]",
    )


def test_lines_may_bring_ids_and_partitions(semel: Semel) -> None:
    lines = [
        '{"id": "own-1", "event": {"type": "t", "n": 1.0}}',
        '{"event": {"type": "t"}, "partitions": ["own/b"], "committed_id": 7, "client_id": "somebody else"}',
        "",
        '{"type": "t", "event": {"this": "is data"}, "id": 5, "partition": 6}',
        '  {"id": "own-1", "event": {"n": 1, "type": "t"}} ',
        '{"id": "own-1", "event": {"type": "changed"}}',
    ]
    run = semel.here("events", "submit", "own/a", "--lines", "--id", "o", "--json", stdin="\n".join(lines).encode())
    assert (run.code, run.err) == (1, "Error: 1 of 5 events were rejected.\n")
    results = objects(run)
    assert [(one["line"], one["id"], one["status"]) for one in results] == [
        (1, "own-1", "committed"),
        (2, "o-2", "committed"),
        (4, "o-4", "committed"),
        (5, "own-1", "committed"),
        (6, "own-1", "rejected"),
    ]
    assert results[0]["committed_id"] == results[3]["committed_id"]
    assert [one["id"] for one in listed(semel, "own/a")] == ["own-1", "o-4"]
    assert listed(semel, "own/a")[1]["event"] == json.loads(lines[3])
    assert [(one["id"], one["client_id"]) for one in listed(semel, "own/b")] == [("o-2", "default")]


def test_rejected_lines_are_named_and_stop_nothing(semel: Semel) -> None:
    lines = b'{"type": "t"}\n{"type": ""}\n{"type": "t"}\n'
    run = semel.here("events", "submit", "named", "--lines", "--id", "n", stdin=lines)
    assert run.code == 1
    assert run.err.splitlines() == [
        "Line 2: The event n-2 was rejected: event.type: must be a non-empty string [validation_failed]",
        "Error: 1 of 3 events were rejected.",
    ]
    assert re.fullmatch(r"Committed 2 events, up to committed_id \d+ \(--id n\)\n", run.out)
    assert [one["id"] for one in listed(semel, "named")] == ["n-1", "n-3"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("not json", "The text is not JSON"),
        ("7", "An event must be a JSON object."),
        ('{"type": "t", "type": "t"}', "occurs twice"),
        ('{"id": "", "event": {"type": "t"}}', "The id of an item must be a non-empty string."),
        ('{"id": 1e999, "event": {"type": "t"}}', "The id of an item must be a non-empty string."),
        ('{"event": [1]}', "The event of an item must be a JSON object."),
        (
            '{"event": {"type": "t"}, "partition": "p"}',
            "An item must have partitions, a list of names, and not partition.",
        ),
        ('{"event": {"type": "t"}, "partitions": "p"}', "The partitions of an item must be a list of strings."),
        ('{"event": {"type": "t"}, "partitions": [1]}', "The partitions of an item must be a list of strings."),
    ],
)
def test_a_line_that_cannot_be_sent_is_named(semel: Semel, line: str, sentence: str) -> None:
    name = "bad/" + sha256(line.encode()).hexdigest()
    content = f'{{"type": "t"}}\n\n{line}\n{{"type": "t"}}\n'.encode()
    run = semel.here("events", "submit", name, "--lines", "--id", name, stdin=content)
    refused(run, sentence)
    assert run.err.startswith("Error: Line 3: ")
    assert run.err.endswith(" " + RESUME.format(name))
    assert [one["id"] for one in listed(semel, name)] == [f"{name}-1"]
    mended = semel.here("events", "submit", name, "--lines", "--id", name, stdin=content.replace(line.encode(), b""))
    assert mended.code == 0
    assert [one["id"] for one in listed(semel, name)] == [f"{name}-1", f"{name}-4"]


def test_lines_without_partitions_anywhere(semel: Semel) -> None:
    for line in (b'{"type": "t"}', b'{"event": {"type": "t"}}'):
        refused(semel.here("events", "submit", "--lines", stdin=line), "Line 1: It has no partitions: ")


def test_no_lines_are_no_error(semel: Semel) -> None:
    nothing = semel.here("events", "submit", "nothing", "--lines", stdin=b"\n \n")
    assert nothing == (0, b"Committed 0 events\n", "")


def test_lines_are_sent_as_they_come_and_control_c_says_how_to_go_on(semel: Semel) -> None:
    with semel.start("events", "submit", "stopped", "--lines", "--id", "s", "--json") as run:
        assert run.stdin is not None
        assert run.stdout is not None
        for number in (1, 2):
            run.stdin.write(b'{"type": "t"}\n')
            run.stdin.flush()
            assert json.loads(run.stdout.readline())["id"] == f"s-{number}"
        run.send_signal(signal.SIGINT)
        assert run.stderr is not None
        assert run.stderr.read().decode() == "Error: Stopped after line 2. " + RESUME.format("s")
    assert run.returncode == 1


def test_a_bar_on_a_terminal(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(LINES)
    shown = semel.on_terminal("events", "submit", "bar", "--lines", "--file", str(tmp_path / "lines"))
    assert (shown.code, b"Submitting  [####" in shown.raw, b"100%" in shown.raw) == (0, True, True)


def test_what_was_read_can_be_submitted_elsewhere(semel: Semel, tmp_path: Path) -> None:
    submitted(semel, "move-a", "move-b", "--event", '{"type": "t", "n": 1.50}', "--client-id", "someone")
    submitted(semel, "move-b", "--event", NOTE)
    read = semel.here("events", "read", "--partition", "move-b", "--all")
    with RunningServer(tmp_path / "other") as other:
        there = Semel(other.url)
        for _ in range(2):
            assert (
                there.here("events", "submit", "--lines", stdin=read.raw).out
                == "Committed 2 events, up to committed_id 2\n"
            )
        moved = listed(there, "move-a", "move-b")
    content = [(one["id"], one["partitions"], one["event"]) for one in objects(read)]
    assert [(one["id"], one["partitions"], one["event"]) for one in moved] == content


def test_read_goes_through_every_page_to_a_fixed_end(semel: Semel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("semel.client.events.follow"), "PAGE_EVENTS", 2)
    for number in range(7):
        submitted(semel, f"pages/{number % 2}", "--event", NOTE, "--id", f"pages-{number}")
    whole = listed(semel, "pages/0", "pages/1")
    assert [one["id"] for one in whole] == [f"pages-{number}" for number in range(7)]
    assert [one["id"] for one in listed(semel, "pages/0")] == ["pages-0", "pages-2", "pages-4", "pages-6"]
    since = str(whole[2]["committed_id"])
    assert listed(semel, "pages/0", "pages/1", args=("--since", since)) == whole[3:]
    assert listed(semel, "pages/0", "pages/1", args=("--limit", "3")) == whole[:3]
    assert listed(semel, "no/such/partition") == []
    ahead = semel.here("events", "read", "--partition", "pages/0", "--since", str(2**53))
    assert (ahead.code, ahead.raw) == (1, b"")
    assert "this reader has read up to" in ahead.err, "told, never served in silence"


def one_event(committed_id: int, event: str = '{"type":"t"}') -> str:
    about = f'"id":"e{committed_id}","client_id":"c","partitions":["p"],"committed_id":{committed_id}'
    return f'{{{about},"event":{event},"status_updated_at":1760000000000}}'


def test_pages_of_one_run_have_one_bound() -> None:
    page = '{{"events": [{}], "next_since_committed_id": {}, "sync_to_committed_id": 9, "log_epoch": 3, {}}}'
    events = one_event(3, '{"type":"t","n":1.0,"events":[[]]}'), one_event(4, '{"type":"t","n":12345678901234567000}')
    first = page.format(", ".join(events), 4, '"has_more": true, "pruned_to_committed_id": 2')
    again = page.format(", ".join(events), 4, '"has_more": true')
    last = page.format("", 9, '"has_more": false')
    with scripted(*(Line(200, {}, one.encode()) for one in (first, again, last))) as server:
        run = Semel(server.url).here("events", "read", "--partition", "a b&c", "--since", "1", "--all")
    assert (run.code, run.out) == (0, "".join(f"{event}\n" for event in events))
    assert run.err == "Events up to 2 are no longer kept.\n"
    assert [seen.path for seen in server.seen] == [
        "/v1/events?partition=a+b%26c&limit=1000&since=1",
        "/v1/events?partition=a+b%26c&limit=1000&to=9&since=2&log_epoch=3",
        "/v1/events?partition=a+b%26c&limit=1000&to=9&since=4&log_epoch=3",
    ]


def test_read_from_the_end_and_by_type(semel: Semel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("semel.cli.events"), "PAGE", 2)
    for number in range(7):
        submitted(semel, "ends", "--event", f'{{"type": "{"ab"[number % 2]}"}}', "--id", f"ends-{number}")
    whole = listed(semel, "ends")
    assert listed(semel, "ends", args=("--last", "3")) == whole[4:]
    assert listed(semel, "ends", args=("--last", "3", "--reverse")) == whole[:3:-1]
    assert listed(semel, "ends", args=("--last", "9")) == whole
    assert listed(semel, "ends", args=("--reverse", "--all")) == whole[::-1]
    assert listed(semel, "ends", args=("--last", "2", "--before", str(whole[3]["committed_id"]))) == whole[1:3]
    assert listed(semel, "ends", args=("--type", "b")) == whole[1::2]
    assert listed(semel, "ends", args=("--type", "a", "--last", "2")) == whole[4::2]
    some = semel.here("events", "read", "--partition", "ends", "--reverse", "--limit", "2")
    assert objects(some) == whole[:4:-1]
    assert some.err == f"There are more: continue with --before {whole[5]['committed_id']}, or give --all.\n"


def test_one_event_and_the_list_of_partitions(semel: Semel) -> None:
    made = submitted(semel, "known/a", "known/b", "--event", NOTE, "--id", "known/1")
    assert objects(semel.here("events", "get", "known/1")) == listed(semel, "known/a")
    refused(semel.here("events", "get", "unknown"), "[not_found]")
    last = made["committed_id"]
    facts = {"watermark": last, "first_committed_id": last, "events": 1}
    both = objects(semel.here("events", "partitions", "known/", "--json"))
    assert both == [{"partition": name, **facts} for name in ("known/a", "known/b")]
    shown = semel.here("events", "partitions", "known/a").out.split("\n")
    assert shown[1].split() == ["known/a", "1", str(last), str(last)]
    assert semel.here("events", "partitions", "no/such").err == "There are no partitions.\n"


def test_submit_at_a_watermark(semel: Semel) -> None:
    first = submitted(semel, "mark", "--event", NOTE, "--if-watermark", "0")
    late = semel.here("events", "submit", "mark", "--event", NOTE, "--if-watermark", "0")
    refused(late, "[watermark_mismatch]")
    submitted(semel, "mark", "--event", NOTE, "--if-watermark", str(first["committed_id"]))
    assert len(listed(semel, "mark")) == 2


NAMES = ["with space", "a/b", "ünïcode/日本語/🎉", "100%", "a?b#c&d=e+f", "-dash", "q\"uo'te\\", "line\nend"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_one_partition(semel: Semel, name: str) -> None:
    made = submitted(semel, "--event", NOTE, "--", name)
    found = listed(semel, name)
    assert [(one["id"], one["partitions"]) for one in found] == [(made["id"], [name])]


@contextmanager
def following(semel: Semel, *args: str) -> Iterator[subprocess.Popen[bytes]]:
    with semel.start("events", "tail", *args) as run:
        try:
            yield run
        finally:
            run.kill()


def next_event(run: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert run.stdout is not None
    event: dict[str, Any] = json.loads(run.stdout.readline())
    return event


def test_tail_has_history_then_what_comes_over_restarts_each_once(server: RunningServer, semel: Semel) -> None:
    first = submitted(semel, "tail/a", "--event", NOTE)
    with following(semel, "--partition", "tail/a", "--partition", "tail/b", "--from-start") as run:
        assert next_event(run)["committed_id"] == first["committed_id"]
        for number in range(6):
            sent = submitted(semel, f"tail/{'ab'[number % 2]}", "--event", f'{{"type": "t", "n": {number}}}')
            submitted(semel, "tail/elsewhere", "--event", NOTE)
            event = next_event(run)
            assert (event["committed_id"], event["event"]["n"]) == (sent["committed_id"], number)
            if number == 1:
                server.restart()
            if number == 3:
                server.kill()
                server.start()
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=SECONDS)
    assert (run.returncode, out) == (0, b"")
    assert err.count(b"Trying again.\n") == err.count(b"\n")


def test_tail_begins_now_or_behind_a_position(semel: Semel) -> None:
    ids = [submitted(semel, "from", "--event", NOTE)["committed_id"] for _ in range(3)]
    with following(semel, "--partition", "from", "--since", str(ids[0])) as run:
        assert [next_event(run)["committed_id"] for _ in range(2)] == ids[1:]
    with following(semel, "--partition", "from") as run:
        sent, said = list[int](), run.stdout
        assert said is not None

        def has_said_something() -> bool:
            sent.append(submitted(semel, "from", "--event", NOTE)["committed_id"])
            return bool(select.select([said], [], [], 0.1)[0])

        # It begins whenever it has been started.
        eventually(has_said_something, "something comes")
        sent += [submitted(semel, "from", "--event", NOTE)["committed_id"] for _ in range(3)]
        seen = [next_event(run)["committed_id"]]
        seen += [next_event(run)["committed_id"] for _ in sent[sent.index(seen[0]) + 1 :]]
    assert seen == sent[sent.index(seen[0]) :]


STREAM = {"Content-Type": "text/event-stream", "Events-Log-Epoch": "2"}
END = Line(403, {}, b'{"code": "forbidden", "detail": "This is the end.", "retry": "never"}')


def frame(committed_id: int, event: str = '{"type":"t"}') -> bytes:
    return f"id: {committed_id}\nevent: event\ndata: {one_event(committed_id, event)}\n\n".encode()


def test_a_broken_tail_goes_on_behind_the_last_whole_event() -> None:
    event = '{"type":"t","n":1.0}'
    first = b":\n\n" + frame(5, event) + frame(6)[:40]
    with scripted(Line(200, STREAM, first), Line(503, {}), END) as server:
        run = Semel(server.url).here("events", "tail", "--partition", "p", "--since", "3")
    assert (run.code, run.out) == (1, f"{one_event(5, event)}\n")
    assert run.err.splitlines()[-1] == "Error: This is the end. [forbidden]"
    behind = "/v1/events?partition=p&since=5&log_epoch=2"
    assert [seen.path for seen in server.seen] == ["/v1/events?partition=p&since=3", behind, behind]
    assert {seen.headers["Accept"] for seen in server.seen} == {"text/event-stream"}


PRUNED = b'event: pruned\ndata: {"pruned_to_committed_id":4}\n\n'


def test_c1_a_tail_warns_of_events_that_are_no_longer_kept_and_goes_on() -> None:
    with scripted(Line(200, STREAM, PRUNED + frame(5)), Line(200, STREAM, frame(5)), END) as server:
        run = Semel(server.url).here("events", "tail", "--partition", "p", "--since", "1")
    assert (run.code, run.out) == (1, f"{one_event(5)}\n")
    assert run.err.splitlines()[0] == "Events up to 4 are no longer kept."
    queries = [seen.path.partition("&")[2] for seen in server.seen]
    assert queries == ["since=1", "since=4&log_epoch=2", "since=5&log_epoch=2"]


def test_a_tail_of_a_restored_log_says_where_to_go_on() -> None:
    reset = b'event: reset\ndata: {"log_epoch":3,"agreed_committed_id":4}\n\n'
    with scripted(Line(200, STREAM, frame(5)), Line(200, STREAM, reset)) as server:
        run = Semel(server.url).here("events", "tail", "--partition", "p", "--since", "1")
    assert (run.code, run.out) == (1, f"{one_event(5)}\n")
    assert run.err.endswith("Both histories agree up to 4: continue with --since 4.\n")


def test_c1_a_strict_tail_ends_with_4_where_events_are_missing() -> None:
    with scripted(Line(200, STREAM, PRUNED + frame(5))) as server:
        run = Semel(server.url).here("events", "tail", "--partition", "p", "--since", "1", "--strict")
    assert (run.code, run.out, run.err) == (4, "", "Events up to 4 are no longer kept.\n")


def test_a_reader_that_leaves_is_no_failure(semel: Semel) -> None:
    submitted(semel, "pipe", "--event", NOTE)
    with following(semel, "--partition", "pipe", "--from-start") as run:
        next_event(run)
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        submitted(semel, "pipe", "--event", NOTE)
        assert (run.wait(SECONDS), run.stderr.read()) == (0, b"")


def test_tries_of_lines_are_bounded_and_the_ids_are_told() -> None:
    with scripted(Line(0)) as server:
        args = ("events", "submit", "p", "--lines", "--id", "b", "--retries", "0")
        lines = Semel(server.url).here(*args, stdin=LINES.encode())
    assert lines.code == 1
    assert lines.err.startswith("Error: Lines 1 to 100: The connection to ")
    assert lines.err.endswith(" " + RESUME.format("b"))


@pytest.mark.parametrize("point", ["flushed", "committed"])
def test_a_server_killed_in_mid_commit_commits_once(tmp_path: Path, point: str) -> None:
    """Before the commit the retry commits it; after the commit, with the answer lost, the retry is told of it."""
    crash = {"SEMEL_CRASH_POINT": point, "SEMEL_CRASH_ONE_IN": "1"}
    doomed = RunningServer(tmp_path / "data", env=crash)
    calm = RunningServer(tmp_path / "data", port=doomed.port)
    semel = Semel(doomed.url)
    doomed.launch({})
    run = semel.start("events", "submit", "p", "--event", NOTE, "--json", "--retries", "20")
    if doomed.wait_for_death(SECONDS) is None:
        doomed.kill()
    with calm:
        out, err = run.communicate(timeout=SECONDS)
        assert run.returncode == 0, err
        assert [one["id"] for one in listed(semel, "p")] == [json.loads(out)["id"]]


TOKEN, READER = "a-token-that-nobody-must-see", "a-token-that-may-only-read"


def test_credentials_and_partitions_that_are_not_allowed(tmp_path: Path) -> None:
    entry = '[[token]]\nname = "{}"\nsha256 = "{}"\nroles = {}\nscopes = ["events:open/*"]\n'
    known = [("writer", TOKEN, '["read", "write"]'), ("reader", READER, '["read"]')]
    text = "".join(entry.format(name, sha256(token.encode()).hexdigest(), roles) for name, token, roles in known)
    (tmp_path / "tokens.toml").write_text(text)
    with RunningServer(tmp_path / "data", env={"SEMEL_TOKENS": str(tmp_path / "tokens.toml")}) as server:
        writer, reader = Semel(server.url, {"SEMEL_TOKEN": TOKEN}), Semel(server.url, {"SEMEL_TOKEN": READER})
        submitted(writer, "open/a", "--event", NOTE, "--id", "allowed")
        assert [one["client_id"] for one in listed(reader, "open/a")] == ["writer"]
        refused(reader.here("events", "submit", "open/a", "--event", NOTE), "[forbidden]")
        refused(writer.here("events", "submit", "open/a", "shut", "--event", NOTE), "[forbidden]")
        for command in ("read", "tail"):
            refused(reader.here("events", command, "--partition", "open/a", "--partition", "shut"), "[forbidden]")
            refused(Semel(server.url).here("events", command, "--partition", "open/a"), "[auth_failed]")
        foreign = writer.here("events", "submit", "open/a", "--event", NOTE, "--client-id", "reader")
        refused(foreign, "[auth_failed]")
        assert httpx.get(f"{server.url}/readyz").status_code == 200

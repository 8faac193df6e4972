"""create, append, read, ls and rm, against a real server, as a script uses them."""

from __future__ import annotations

import json
import time
from importlib import import_module
from pathlib import Path

import pytest

from tests.cli.command import Semel

START = "0000000000000000_0000000000000000"


def test_create_says_whether_it_was_there(semel: Semel) -> None:
    first = semel.here("streams", "create", "made", "--type", "text/plain")
    again = semel.here("streams", "create", "made", "--type", "text/plain")
    other = semel.here("streams", "create", "made", "--type", "text/html")
    assert (first.code, first.out) == (0, f"Created made (text/plain, at {START})\n")
    assert (again.code, again.out) == (0, f"Already there: made (text/plain, at {START})\n")
    assert other.code == 1
    assert other.err.startswith("Error: The stream exists with another ")
    assert other.err.endswith(" [STREAM_EXISTS]\n")
    assert other.out == ""


def test_create_as_json(semel: Semel) -> None:
    made = semel.here(
        "streams", "create", "made-json", "--type", "text/plain", "--data", "abc", "--closed", "--json"
    ).facts
    assert made.pop("next_offset") > START
    assert made == {"name": "made-json", "created": True, "content_type": "text/plain", "closed": True}


@pytest.mark.parametrize("way", ["data", "file", "file-stdin", "stdin"])
def test_create_with_first_content(semel: Semel, tmp_path: Path, way: str) -> None:
    content = "grüß\nGott"
    (tmp_path / "content").write_text(content, "utf-8")
    ways = {
        "data": ["--data", content],
        "file": ["--file", str(tmp_path / "content")],
        "file-stdin": ["--file", "-"],
        "stdin": ["-"],
    }
    made = semel.here("streams", "create", f"first-{way}", *ways[way], stdin=content.encode())
    assert made.code == 0, made.err
    assert semel.here("streams", "read", f"first-{way}").raw == content.encode()


def test_create_with_an_end(semel: Semel) -> None:
    semel.here("streams", "create", "ends/idle", "--ttl", "3600")
    semel.here("streams", "create", "ends/fixed", "--expires-at", "2099-01-31T12:00:00Z")
    wrong = semel.here("streams", "create", "ends/wrong", "--expires-at", "tomorrow")
    assert (wrong.code, wrong.err.count("\n")) == (1, 1)
    assert "[INVALID_EXPIRY]" in wrong.err
    listed = [json.loads(line) for line in semel.here("streams", "ls", "ends/", "--json").out.splitlines()]
    ends = {one["name"]: (one["ttl_seconds"], one["expires_at"]) for one in listed}
    assert ends == {"ends/idle": (3600, None), "ends/fixed": (None, "2099-01-31T12:00:00Z")}


def test_append_asks_for_the_type_and_makes_keys(semel: Semel) -> None:
    semel.here("streams", "create", "log", "--type", "application/json")
    one = semel.here("streams", "append", "log", '{"n": 1}', "--json").facts
    two = semel.here("streams", "append", "log", "-", "--json", stdin=b'{"n": 2}').facts
    assert set(one) == {"name", "key", "next_offset", "replayed", "closed"}
    assert not one["replayed"]
    assert one["key"] < two["key"]
    assert one["next_offset"] < two["next_offset"]
    assert semel.here("streams", "read", "log").out == '{"n": 1}\n{"n": 2}\n'


def test_append_under_one_key_is_stored_once(semel: Semel) -> None:
    semel.here("streams", "create", "once", "--type", "application/json")
    first = semel.here("streams", "append", "once", "1", "--key", "k")
    again = semel.here("streams", "append", "once", "1", "--key", "k")
    other = semel.here("streams", "append", "once", "2", "--key", "k")
    assert first.out.startswith("Stored in once; next offset ")
    assert again.out == first.out.replace("Stored", "Already stored (replayed)")
    assert semel.here("streams", "append", "once", "1", "--key", "k", "--json").facts["replayed"] is True
    assert (other.code, "[IDEMPOTENCY_MISMATCH]" in other.err) == (1, True)
    assert semel.here("streams", "read", "once").out == "1\n"


def test_append_from_a_file_with_type_seq_and_close(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(bytes(range(256)))
    semel.here("streams", "create", "bytes")
    options = ["--type", "application/octet-stream", "--seq", "b", "--close", "--json"]
    stored = semel.here("streams", "append", "bytes", "--file", str(tmp_path / "bytes"), *options).facts
    assert stored["closed"]
    assert semel.here("streams", "read", "bytes").raw == bytes(range(256))
    closed = semel.here("streams", "append", "bytes", "more")
    assert (closed.code, "[STREAM_CLOSED]" in closed.err) == (1, True)


def test_append_refuses_an_older_seq_and_another_type(semel: Semel) -> None:
    semel.here("streams", "create", "seq", "--type", "text/plain")
    semel.here("streams", "append", "seq", "x", "--seq", "b")
    older = semel.here("streams", "append", "seq", "y", "--seq", "a")
    other = semel.here("streams", "append", "seq", "y", "--type", "text/html")
    assert (older.code, "[SEQUENCE_CONFLICT]" in older.err) == (1, True)
    assert (other.code, "[CONTENT_TYPE_MISMATCH]" in other.err) == (1, True)


def test_close_without_content(semel: Semel) -> None:
    semel.here("streams", "create", "shut", "--type", "text/plain")
    closed = semel.here("streams", "append", "shut", "--close")
    assert (closed.code, closed.out.endswith("; the stream is closed\n")) == (0, True)
    assert semel.here("streams", "read", "shut", "--json").facts["closed"]


def test_a_body_that_is_too_large_is_refused_in_words(semel: Semel) -> None:
    semel.here("streams", "create", "large")
    refused = semel.here("streams", "append", "large", "-", stdin=bytes(17 * 1024 * 1024))
    assert refused.code == 1
    assert refused.err == "Error: The body is larger than this server accepts; split it. [PAYLOAD_TOO_LARGE]\n"


def test_read_goes_through_every_page(semel: Semel) -> None:
    lines = [json.dumps({"number": number, "text": "x" * 40}) for number in range(30)]
    semel.here("streams", "create", "pages", "--type", "application/json")
    for line in lines[:5]:
        semel.here("streams", "append", "pages", line)
    semel.here("streams", "append", "pages", "-", "--lines", stdin="\n".join(lines[5:]).encode())
    whole = semel.here("streams", "read", "pages", "--json").facts
    assert semel.here("streams", "read", "pages").out.splitlines() == lines
    assert whole["messages"] == [json.loads(line) for line in lines]
    assert (whole["content_type"], whole["closed"]) == ("application/json", False)
    assert semel.here("streams", "read", "pages", "--offset", whole["next_offset"]).out == ""
    assert semel.here("streams", "read", "pages", "--offset", "now", "--json").facts["messages"] == []


def test_json_messages_keep_their_text_and_take_one_line_each(semel: Semel) -> None:
    sent = '{"big": 123456789012345678901234567890, "e": 1.0e0,\r\n "s": "a\\nb\\u00e9", "s": 2}'
    semel.here("streams", "create", "exact", "--type", "application/json")
    semel.here("streams", "append", "exact", sent)
    semel.here("streams", "append", "exact", "[[1], 2]")
    shown = sent.replace("\r\n", "  ")
    assert semel.here("streams", "read", "exact").out == f"{shown}\n[1]\n2\n"
    assert f'"messages": [{shown}, [1], 2]' in semel.here("streams", "read", "exact", "--json").out


def test_read_of_other_types_as_json(semel: Semel) -> None:
    semel.here("streams", "create", "text", "--type", "text/plain", "--data", "é\n")
    semel.here("streams", "create", "blob", "--file", "-")
    semel.here("streams", "append", "blob", "-", stdin=b"\xff\x00")
    assert semel.here("streams", "read", "text", "--json").facts["text"] == "é\n"
    assert semel.here("streams", "read", "blob", "--json").facts["base64"] == "/wA="


NAMES = ["with space", "a/b//c/", "ünïcode/日本語/🎉", "100%", "%2F", "a?b#c&d=e+f", "-dash", "q\"uo'te\\", "~.-_", "*"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_one_stream(semel: Semel, name: str) -> None:
    made = semel.here("streams", "create", "--type", "text/plain", "--json", "--", name).facts
    assert (made["name"], made["created"]) == (name, True)
    semel.here("streams", "append", "--", name, "content")
    assert semel.here("streams", "read", "--", name).out == "content"
    listed = [json.loads(line) for line in semel.here("streams", "ls", "--json", "--", name).out.splitlines()]
    assert [one["name"] for one in listed] == [name]
    assert semel.here("streams", "rm", "--yes", "--json", "--", name).facts["deleted"] is True
    assert semel.here("streams", "read", "--", name).code == 1


def test_names_that_no_stream_can_have(semel: Semel) -> None:
    for name in ("../up", "a/./b", "line\nend", "", "x" * 1025):
        refused = semel.here("streams", "create", name)
        assert (refused.code, "[INVALID_REQUEST]" in refused.err) == (1, True), name


def test_ls_is_a_table_in_order(semel: Semel) -> None:
    for name in ("tab/日本", "tab/b" + "x" * 40, "tab/a"):
        semel.here("streams", "create", name, "--type", "text/plain", "--ttl", "60")
    semel.here("streams", "append", "tab/a", "--close")
    lines = semel.here("streams", "ls", "tab/").out.splitlines()
    assert lines[0].split() == ["NAME", "TYPE", "NEXT", "OFFSET", "STATE", "EXPIRES"]
    assert [line.split()[0] for line in lines[1:]] == ["tab/a", "tab/b" + "x" * 40, "tab/日本"]
    assert lines[1].split()[1:] == ["text/plain", START, "closed", "60", "s", "after", "use"]
    column = lines[0].index("TYPE")
    assert [line.index("text/plain") for line in lines[1:]] == [column, column, column - 2]  # two wide letters


def test_ls_goes_through_every_page(semel: Semel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("semel.client.streams.calls"), "PAGE_STREAMS", 2)
    names = sorted([f"many/{number}" for number in range(5)] + [f"many/ü {number} " + "x" * 40 for number in range(5)])
    for name in names:
        semel.here("streams", "create", name)
    listed = [json.loads(line)["name"] for line in semel.here("streams", "ls", "many/", "--json").out.splitlines()]
    assert sorted(listed) == names
    assert len(semel.here("streams", "ls", "many/").out.splitlines()) == 11


def test_ls_of_nothing(semel: Semel) -> None:
    nothing = semel.here("streams", "ls", "no such prefix")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "No stream name starts with no such prefix.\n")
    assert semel.here("streams", "ls", "no such prefix", "--json") == (0, b"", "")


def test_rm_needs_a_yes(semel: Semel) -> None:
    semel.here("streams", "create", "doomed", "--type", "text/plain")
    refused = semel.here("streams", "rm", "doomed")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    dry = semel.here("streams", "rm", "doomed", "--dry-run")
    assert (dry.code, dry.out) == (0, f"Would delete doomed (text/plain, open, up to {START})\n")
    facts = semel.here("streams", "rm", "doomed", "--dry-run", "--yes", "--json").facts
    assert (facts["deleted"], facts["dry_run"], facts["next_offset"]) == (False, True, START)
    assert semel.here("streams", "rm", "doomed", "--yes").out == "Deleted doomed\n"
    gone = semel.here("streams", "rm", "doomed", "--yes")
    assert (gone.code, "[STREAM_NOT_FOUND]" in gone.err) == (1, True)


def test_rm_asks_at_a_terminal(semel: Semel) -> None:
    semel.here("streams", "create", "asked")
    no = semel.on_terminal("streams", "rm", "asked", typed=b"n\n")
    assert (no.code, b"Delete it? [y/N]" in no.raw, b"Deleted" in no.raw) == (1, True, False)
    yes = semel.on_terminal("streams", "rm", "asked", typed=b"y\n")
    assert (yes.code, b"Deleted asked" in yes.raw) == (0, True)


def test_colours_are_for_terminals_only(semel: Semel) -> None:
    semel.here("streams", "create", "coloured")
    assert b"\x1b" not in semel.here("streams", "ls", "coloured").raw
    assert b"\x1b[1mNAME" in semel.on_terminal("streams", "ls", "coloured").raw
    assert b"\x1b" not in semel.on_terminal("streams", "ls", "coloured", env={"NO_COLOR": "1"}).raw


def test_an_expired_stream_is_gone(semel: Semel) -> None:
    semel.here("streams", "create", "short", "--ttl", "1")
    time.sleep(1.1)
    assert "[STREAM_NOT_FOUND]" in semel.here("streams", "append", "short", "x").err


@pytest.mark.parametrize("command", ["append", "read", "rm", "tail"])
def test_a_missing_stream_is_one_sentence(semel: Semel, command: str) -> None:
    more = {"append": ["x"], "rm": ["--yes"]}.get(command, [])
    missing = semel.here("streams", command, "missing", *more)
    assert (missing.code, missing.out) == (1, "")
    assert missing.err.count("\n") == 1
    assert missing.err.startswith("Error: There is no stream of this name")
    hint = " Create it with `semel streams create missing --type MIME`." if command == "append" else ""
    assert missing.err.endswith(f"[STREAM_NOT_FOUND]{hint}\n")


def test_fork_shares_content_up_to_an_offset(semel: Semel) -> None:
    semel.here("streams", "create", "trunk", "--type", "application/json")
    first = semel.here("streams", "append", "trunk", "1", "--json").facts["next_offset"]
    semel.here("streams", "append", "trunk", "[2, 3]")
    whole = semel.here("streams", "fork", "trunk", "branch", "--json").facts
    assert (whole["name"], whole["created"], whole["content_type"]) == ("branch", True, "application/json")
    assert semel.here("streams", "fork", "trunk", "branch").out.startswith(
        "Already there: branch (application/json, at "
    )
    semel.here("streams", "append", "branch", "4")
    part = semel.here(
        "streams", "fork", "trunk", "part", "--offset", first, "--sub-offset", "1", "--data", "[5]", "--closed"
    )
    assert (part.code, part.out.endswith(", closed)\n")) == (0, True), part.err
    assert [semel.here("streams", "read", name).out for name in ("trunk", "branch", "part")] == [
        "1\n2\n3\n",
        "1\n2\n3\n4\n",
        "1\n2\n5\n",
    ]
    missing = semel.here("streams", "fork", "nothing", "branch-2")
    assert (missing.code, "[FORK_SOURCE_NOT_FOUND]" in missing.err) == (1, True)


def test_create_with_a_retention(semel: Semel) -> None:
    kept = ("streams", "create", "kept", "--retention-age", "3600", "--retention-bytes", "1000000")
    assert semel.here(*kept).out.startswith("Created kept ")
    assert semel.here(*kept).out.startswith("Already there: kept ")
    assert "[STREAM_EXISTS]" in semel.here("streams", "create", "kept", "--retention-age", "60").err

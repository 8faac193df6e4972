"""`append --lines`: an import that can be interrupted and run again."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.cli.command import Semel
from tests.client.cutter import Cutter
from tests.harness.server import RunningServer
from tests.harness.together import eventually

LINES = "".join(f'{{"n": {number}}}\n' for number in range(1, 41))


def test_twice_gives_no_doubles(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(LINES)
    semel.here("streams", "create", "twice", "--type", "application/json")
    import_it = ("streams", "append", "twice", "--file", str(tmp_path / "lines"), "--lines", "--key", "import")
    first = semel.here(*import_it, "--json").facts
    again = semel.here(*import_it, "--json").facts
    assert (first["stored"], first["replayed"]) == (40, 0)
    assert (again["stored"], again["replayed"]) == (0, 40)
    assert first["next_offset"] == again["next_offset"]
    assert semel.here(*import_it).out.startswith("Stored 0 lines in twice, 40 already stored (replayed); next offset ")
    assert semel.here("streams", "read", "twice").out == LINES


def test_an_interrupted_import_goes_on(semel: Semel) -> None:
    semel.here("streams", "create", "half", "--type", "application/json")
    half = "".join(LINES.splitlines(keepends=True)[:17]).encode()
    semel.here("streams", "append", "half", "-", "--lines", "--key", "i", stdin=half)
    rest = semel.here(
        "streams", "append", "half", "-", "--lines", "--key", "i", "--close", "--json", stdin=LINES.encode()
    )
    assert (rest.facts["stored"], rest.facts["replayed"], rest.facts["closed"]) == (23, 17, True)
    once_more = semel.here("streams", "append", "half", "-", "--lines", "--key", "i", "--close", stdin=LINES.encode())
    assert once_more.code == 0, once_more.err
    assert semel.here("streams", "read", "half").out == LINES


def test_control_c_says_how_to_go_on(semel: Semel) -> None:
    semel.here("streams", "create", "stopped", "--type", "text/plain")
    with semel.start("streams", "append", "stopped", "-", "--lines", "--key", "k") as run:
        assert run.stdin is not None
        assert run.stderr is not None
        run.stdin.write(b"one\ntwo\n")
        run.stdin.flush()
        wait_for(semel, "stopped", "one\ntwo\n")
        run.send_signal(signal.SIGINT)
        err = run.stderr.read()
    assert run.returncode == 1
    advice = b"Earlier lines are stored: run this again with --key k, and no line is stored twice.\n"
    assert err == b"Error: Stopped at line 2. " + advice


def wait_for(semel: Semel, name: str, content: str) -> None:
    eventually(lambda: semel.here("streams", "read", name).out == content, f"{name} holds {content!r}")


def test_a_bad_line_is_named(semel: Semel) -> None:
    semel.here("streams", "create", "bad", "--type", "application/json")
    refused = semel.here("streams", "append", "bad", "-", "--lines", "--key", "b", stdin=b"1\n\nnot json\n4\n")
    assert refused.code == 1
    assert refused.err.startswith("Error: Line 3: The text is not JSON")
    assert refused.err.endswith("run this again with --key b, and no line is stored twice.\n")
    mended = semel.here("streams", "append", "bad", "-", "--lines", "--key", "b", "--json", stdin=b"1\n\n3\n4\n").facts
    assert (mended["stored"], mended["replayed"]) == (2, 1)
    assert semel.here("streams", "read", "bad").out == "1\n3\n4\n"


def test_lines_of_text_keep_their_ends(semel: Semel) -> None:
    text = b"one\r\n\ntwo \nlast"
    semel.here("streams", "create", "text", "--type", "text/plain")
    assert semel.here("streams", "append", "text", "-", "--lines", "--json", stdin=text).facts["stored"] == 4
    assert semel.here("streams", "read", "text").raw == text


def test_no_lines_are_no_error(semel: Semel) -> None:
    semel.here("streams", "create", "empty", "--type", "application/json")
    nothing = semel.here("streams", "append", "empty", "-", "--lines", "--json").facts
    assert (nothing["stored"], nothing["next_offset"], nothing["closed"]) == (0, None, False)


def test_a_bar_on_a_terminal(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(LINES)
    semel.here("streams", "create", "bar", "--type", "application/json")
    shown = semel.on_terminal("streams", "append", "bar", "--lines", "--file", str(tmp_path / "lines"))
    assert (shown.code, b"Appending  [####" in shown.raw, b"100%" in shown.raw) == (0, True, True)


def started(semel: Semel, name: str, kind: str) -> subprocess.Popen[bytes]:
    """`... | semel streams append NAME --lines`, with a new stream."""
    semel.here("streams", "create", name, "--type", kind)
    return semel.start("streams", "append", name, "--lines", "--json")


def feed(run: subprocess.Popen[bytes], data: bytes) -> None:
    assert run.stdin is not None
    run.stdin.write(data)


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_a_pipe_needs_no_dash_and_its_lines_are_stored_as_they_arrive(semel: Semel, kind: str) -> None:
    name = f"pipe-{kind.partition('/')[0]}"
    with started(semel, name, kind) as run:
        for count in (1, 2, 30, 40):
            before = len(semel.here("streams", "read", name).out.splitlines())
            feed(run, "".join(LINES.splitlines(keepends=True)[before:count]).encode())
            wait_for(semel, name, "".join(LINES.splitlines(keepends=True)[:count]))
        out, err = run.communicate(timeout=30)
    facts = json.loads(out)
    assert (run.returncode, err, facts["stored"], facts["key"]) == (0, b"", 40, None)


def test_many_lines_of_a_pipe_go_in_few_appends_and_keep_their_texts(semel: Semel, server: RunningServer) -> None:
    lines = [b'{"n": 1.0, "n": 12345678901234567890}', b"[1, 2]", b"", b"7", b'"x"', b"  null  "] * 500
    semel.here("streams", "create", "bulk", "--type", "application/json")
    before = appends(server)
    done = semel.here("streams", "append", "bulk", "--lines", "--json", stdin=b"\n".join(lines))
    assert done.facts["stored"] == 2_500
    shown = b'{"n": 1.0, "n": 12345678901234567890}\n1\n2\n7\n"x"\nnull\n' * 500
    assert semel.here("streams", "read", "bulk").raw == shown
    assert appends(server) - before < 2_100  # an array is an append of its own; what is between two of them is one


def appends(server: RunningServer) -> int:
    counts = httpx.get(f"{server.url}/metrics", headers={"Accept": "text/plain"}).text
    return int(float(re.findall(r'semel_streams_appends_total{outcome="stored"} (\S+)', counts)[0]))


def test_control_c_appends_what_a_pipe_has_given(semel: Semel) -> None:
    with started(semel, "cut", "text/plain") as run:
        feed(run, b"one\n")
        wait_for(semel, "cut", "one\n")
        feed(run, b"two\nthr")
        wait_for(semel, "cut", "one\ntwo\n")
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=30)
    assert (run.returncode, err, json.loads(out)["stored"]) == (0, b"", 3)
    assert semel.here("streams", "read", "cut").out == "one\ntwo\nthr"


def test_a_bad_line_of_a_pipe_is_named_and_those_before_it_are_stored(semel: Semel) -> None:
    semel.here("streams", "create", "bad-pipe", "--type", "application/json")
    refused = semel.here("streams", "append", "bad-pipe", "--lines", stdin=b"1\n2\n\n3, 4\n5\n")
    assert refused.err.startswith("Error: Line 4: The text is not JSON")
    assert refused.err.endswith("The lines before are stored.\n")
    assert semel.here("streams", "read", "bad-pipe").out == "1\n2\n"


def test_a_pipe_into_a_missing_stream_says_how_to_create_it(semel: Semel) -> None:
    for more in ([], ["--type", "text/plain"]):
        missing = semel.here("streams", "append", "not there", "--lines", *more, stdin=b"x\n")
        assert missing.code == 1
        assert missing.err.endswith("Create it with `semel streams create 'not there' --type MIME`.\n")


def test_a_batch_of_a_pipe_is_stored_once_though_its_answer_is_lost(semel: Semel, server: RunningServer) -> None:
    semel.here("streams", "create", "lossy", "--type", "application/json")

    async def main() -> None:
        async with Cutter(server.port) as cutter:
            cutter.cut_answer("/v1/stream/lossy", 3)
            command = ("streams", "append", "lossy", "--lines", "--json", "--url", cutter.url)
            done = await asyncio.to_thread(semel, *command, stdin=LINES.encode())
            assert (done.facts["stored"] + done.facts["replayed"], len(cutter.cuts)) == (40, 3)

    asyncio.run(main())
    assert semel.here("streams", "read", "lossy").out == LINES

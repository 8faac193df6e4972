"""`append --lines`: an import that can be interrupted and run again."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.cli.command import Semel
from tests.harness.together import eventually

LINES = "".join(f'{{"n": {number}}}\n' for number in range(1, 41))


def test_twice_gives_no_doubles(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(LINES)
    semel.here("streams", "create", "twice", "--type", "application/json")
    import_it = ("streams", "append", "twice", "--file", str(tmp_path / "lines"), "--lines", "--key", "import")
    first = semel(*import_it, "--json").facts
    again = semel(*import_it, "--json").facts
    assert (first["stored"], first["replayed"]) == (40, 0)
    assert (again["stored"], again["replayed"]) == (0, 40)
    assert first["next_offset"] == again["next_offset"]
    assert semel(*import_it).out.startswith("Stored 0 lines in twice, 40 already stored (replayed); next offset ")
    assert semel("streams", "read", "twice").out == LINES


def test_an_interrupted_import_goes_on(semel: Semel) -> None:
    semel.here("streams", "create", "half", "--type", "application/json")
    half = "".join(LINES.splitlines(keepends=True)[:17]).encode()
    semel.here("streams", "append", "half", "-", "--lines", "--key", "i", stdin=half)
    rest = semel("streams", "append", "half", "-", "--lines", "--key", "i", "--close", "--json", stdin=LINES.encode())
    assert (rest.facts["stored"], rest.facts["replayed"], rest.facts["closed"]) == (23, 17, True)
    once_more = semel("streams", "append", "half", "-", "--lines", "--key", "i", "--close", stdin=LINES.encode())
    assert once_more.code == 0, once_more.err
    assert semel("streams", "read", "half").out == LINES


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
    refused = semel("streams", "append", "bad", "-", "--lines", "--key", "b", stdin=b"1\n\nnot json\n4\n")
    assert refused.code == 1
    assert refused.err.startswith("Error: Line 3: The text is not JSON")
    assert refused.err.endswith("run this again with --key b, and no line is stored twice.\n")
    mended = semel("streams", "append", "bad", "-", "--lines", "--key", "b", "--json", stdin=b"1\n\n3\n4\n").facts
    assert (mended["stored"], mended["replayed"]) == (2, 1)
    assert semel("streams", "read", "bad").out == "1\n3\n4\n"


def test_lines_of_text_keep_their_ends(semel: Semel) -> None:
    text = b"one\r\n\ntwo \nlast"
    semel.here("streams", "create", "text", "--type", "text/plain")
    assert semel("streams", "append", "text", "-", "--lines", "--json", stdin=text).facts["stored"] == 4
    assert semel("streams", "read", "text").raw == text


def test_no_lines_are_no_error(semel: Semel) -> None:
    semel.here("streams", "create", "empty", "--type", "application/json")
    nothing = semel("streams", "append", "empty", "-", "--lines", "--json").facts
    assert (nothing["stored"], nothing["next_offset"], nothing["closed"]) == (0, None, False)


def test_a_bar_on_a_terminal(semel: Semel, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text(LINES)
    semel.here("streams", "create", "bar", "--type", "application/json")
    shown = semel.on_terminal("streams", "append", "bar", "--lines", "--file", str(tmp_path / "lines"))
    assert (shown.code, b"Appending  [####" in shown.raw, b"100%" in shown.raw) == (0, True, True)

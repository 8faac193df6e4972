"""`semel streams append`: one append, or one per line, each stored once.

Each line has a key made of a base key and the line's number. A second run with the same base key appends the missing
lines and duplicates none, as long as the server keeps keys (one day by default). A line that has changed is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import click

from semel.cli.connection import CliAnswer, CliConnection, RequestError
from semel.cli.output import printable, progress, say, with_json
from semel.cli.requests import RETRIES, fresh_key, line_key, with_connection
from semel.cli.source import STDIN, open_source, read_lines, read_whole, size_of
from semel.cli.streams.requests import CliStreamTarget, find_content_type, header_value, is_json


@dataclass
class CliStreamTally:
    """The counts of the lines so far; `line` is the current one."""

    line: int = 0
    stored: int = 0
    replayed: int = 0
    last: CliAnswer | None = None

    def count(self, answer: CliAnswer) -> None:
        """Count the answer to one line."""
        self.last = answer
        if answer.is_true("Idempotency-Replayed"):
            self.replayed += 1
        else:
            self.stored += 1


def append_lines(target: CliStreamTarget, base: str, source: BinaryIO, *, closes: bool) -> CliStreamTally:
    """Append every line in order, then close the stream if requested."""
    tally = CliStreamTally()
    with _resumable(tally, base), progress(size_of(source), "Appending") as advance:
        for line in read_lines(source):
            tally.line += 1
            content = _content(line, target.content_type)
            if content:
                tally.count(target.append(line_key(base, tally.line), content, {}))
            advance(len(line))
        if closes:
            tally.last = target.append(line_key(base, "close"), None, {"Stream-Closed": b"true"})
    return tally


def _content(line: bytes, content_type: str) -> bytes:
    """The content of a line: JSON without the line break, empty lines skipped; other types byte for byte."""
    return line.strip() if is_json(content_type) else line


@contextmanager
def _resumable(tally: CliStreamTally, base: str) -> Iterator[None]:
    """Adds advice on how to continue when the import ends early."""
    advice = f"Earlier lines are stored: run this again with --key {base}, and no line is stored twice."
    try:
        yield
    except RequestError as error:
        raise click.ClickException(f"Line {tally.line}: {error.message} {advice}") from error
    except KeyboardInterrupt:
        raise click.ClickException(f"Stopped at line {tally.line}. {advice}") from None


NO_CONTENT = "Give content: TEXT, or --file FILE, or - for standard input."


@click.command()
@click.argument("name")
@click.argument("text", required=False)
@click.option("--file", type=click.File("rb"), help="File with the content; - is standard input.")
@click.option("--type", "content_type", metavar="MIME", help="Media type; by default that of the stream.")
@click.option("--key", help="Idempotency-Key; by default a new one.")
@click.option("--lines", is_flag=True, help="Append each line separately, with the key KEY-1, KEY-2, ...")
@click.option("--close", is_flag=True, help="Close the stream after the content, if any.")
@click.option("--seq", help="Stream-Seq; the append is refused unless it is greater than the last one.")
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=RETRIES,
    show_default=True,
    help="Maximum retries of a failed request; 0 means none.",
)
@with_json
@with_connection
def append(
    connection: CliConnection,
    name: str,
    text: str | None,
    file: BinaryIO | None,
    content_type: str | None,
    key: str | None,
    lines: bool,
    close: bool,
    seq: str | None,
    retries: int,
    as_json: bool,
) -> None:
    """Append content to a stream, exactly once. TEXT may be - for standard input.

    After a lost connection or a busy server the request is retried with the same key, which the server stores at most
    once. Run an interrupted `--lines` again with the same --key to continue where it stopped.
    """
    source = open_source(None if text == STDIN else text, file, from_stdin=text == STDIN)
    _check(source, lines, close, seq)
    key = fresh_key() if key is None else key
    if source is not None and content_type is None:
        content_type = find_content_type(connection, name, retries)
    target = CliStreamTarget(connection, name, content_type or "", retries)
    if lines and source is not None:
        _report_lines(append_lines(target, key, source, closes=close), name, key, as_json)
    else:
        _report(_append(target, key, source, close, seq), name, key, as_json)


def _check(source: BinaryIO | None, lines: bool, close: bool, seq: str | None) -> None:
    if source is None and (lines or not close):
        raise click.UsageError(NO_CONTENT)
    if lines and seq is not None:
        raise click.UsageError("Give --seq or --lines, not both: --seq belongs to one append.")


def _append(target: CliStreamTarget, key: str, source: BinaryIO | None, close: bool, seq: str | None) -> CliAnswer:
    headers = {"Stream-Closed": b"true"} if close else {}
    if seq is not None:
        headers["Stream-Seq"] = header_value("--seq", seq)
    try:
        return target.append(key, None if source is None else read_whole(source), headers)
    except RequestError as error:
        if error.is_unsettled:
            advice = f"It may be stored: run this again with --key {key} to store it exactly once."
            raise click.ClickException(f"{error.message} {advice}") from error
        raise


def _report(answer: CliAnswer, name: str, key: str, as_json: bool) -> None:
    replayed = answer.is_true("Idempotency-Replayed")
    facts = {
        "name": name,
        "key": key,
        "next_offset": answer.next_offset,
        "replayed": replayed,
        "closed": answer.is_closed,
    }
    outcome = "Already stored (replayed)" if replayed else "Stored"
    say(as_json, facts, f"{outcome} in {printable(name)}; next offset {answer.next_offset}{_closed(answer)}")


def _report_lines(tally: CliStreamTally, name: str, key: str, as_json: bool) -> None:
    last = tally.last
    facts = {
        "name": name,
        "key": key,
        "stored": tally.stored,
        "replayed": tally.replayed,
        "next_offset": None if last is None else last.next_offset,
        "closed": last is not None and last.is_closed,
    }
    where = "" if last is None else f"; next offset {last.next_offset}{_closed(last)}"
    counts = f"Stored {tally.stored} lines in {printable(name)}, {tally.replayed} already stored (replayed)"
    say(as_json, facts, counts + where)


def _closed(answer: CliAnswer) -> str:
    return "; the stream is closed" if answer.is_closed else ""

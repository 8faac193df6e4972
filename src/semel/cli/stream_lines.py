"""`semel streams append --lines`: the lines of an import, or of a pipe as they arrive.

Each line of an import has a key made of a base key and the line's number. A second run with the same base key appends
the missing lines and duplicates none, as long as the server keeps keys (one day by default). A line that has changed is
refused.

Lines of a pipe cannot be read again. They are appended in small batches as they arrive; a batch has one key, which its
retries use. The first Control-C ends the input like its end: what was read is appended.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from types import FrameType
from typing import BinaryIO

import click
import orjson

from semel.cli.output import Said, progress
from semel.cli.session import sentence
from semel.cli.source import ArrivingBytes, line_groups, read_lines, size_of
from semel.client import Client
from semel.client.errors import NotFoundError, SemelError
from semel.client.streams.content import is_json
from semel.client.streams.values import AppendResult

BATCH_LINES = 1_000


class EndableInput:
    """An input that Control-C ends."""

    def __init__(self, source: ArrivingBytes) -> None:
        self._source = source
        self._is_over = self._is_reading = False

    def read1(self, size: int, /) -> bytes:
        """As that of the source; empty after Control-C."""
        self._is_reading = True  # before the look at `_is_over`: from here on Control-C raises
        try:
            return b"" if self._is_over else self._source.read1(size)
        except KeyboardInterrupt:
            return b""
        finally:
            self._is_reading = False

    @contextmanager
    def ended_by_interrupt(self) -> Iterator[None]:
        """For the block: the first Control-C ends the input, and breaks off nothing else; a second one does."""

        def end(number: int, frame: FrameType | None) -> None:
            if self._is_over or self._is_reading:
                self._is_over = True
                raise KeyboardInterrupt
            self._is_over = True

        before = signal.signal(signal.SIGINT, end)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


class AppendedLines:
    """The lines of an input as appends, and their counts."""

    def __init__(self, client: Client, name: str, base: str, content_type: str) -> None:
        self._client, self._name, self._base = client, name, base
        self._type, self._is_json = content_type, is_json(content_type)
        self._first = self._line = self._stored = self._replayed = 0
        self._last: AppendResult | None = None

    def import_lines(self, source: BinaryIO, *, close: bool) -> Said:
        """Append each line under its own key."""
        advice = f"Earlier lines are stored: run this again with --key {self._base}, and no line is stored twice."
        return self._run(([line] for line in read_lines(source)), size_of(source), close, advice, self._base)

    def follow(self, source: BinaryIO, *, close: bool) -> Said:
        """Append lines as they arrive, in batches."""
        arriving = EndableInput(source)  # type: ignore[arg-type]  # standard input is buffered
        groups = (
            lines[start : start + BATCH_LINES]
            for lines in line_groups(arriving)
            for start in range(0, len(lines), BATCH_LINES)
        )
        with arriving.ended_by_interrupt():
            return self._run(groups, None, close, "The lines before are stored.", None)

    def _run(self, groups: Iterable[list[bytes]], size: int | None, close: bool, advice: str, key: str | None) -> Said:
        try:
            with progress(size, "Appending") as advance:
                for lines in groups:
                    self._append_group(lines)
                    advance(sum(map(len, lines)))
                if close:
                    self._last = self._client.streams.close(self._name, key=f"{self._base}-close")
        except NotFoundError:
            raise
        except SemelError as error:
            where = f"Line {self._line}" if self._first >= self._line else f"Lines {self._first} to {self._line}"
            raise click.ClickException(f"{where}: {sentence(error)} {advice}") from error
        except KeyboardInterrupt:
            raise click.ClickException(f"Stopped at line {self._line}. {advice}") from None
        return self._report(key)

    def _append_group(self, lines: list[bytes]) -> None:
        """Append lines that have arrived together: JSON without line breaks, other types byte for byte."""
        contents = [line.strip() for line in lines] if self._is_json else lines
        for are_together, run in groupby(contents, self._is_batched):
            batch = list(run)
            for content in [batch] if are_together else ([one] for one in batch):
                self._append(content)

    def _is_batched(self, content: bytes) -> bool:
        """Whether a line may be one of a batch. One that is empty, an array or not JSON is sent by itself, so that the
        server takes it apart, or refuses it alone.
        """
        if not self._is_json:
            return True
        try:
            return not isinstance(orjson.loads(content), list)
        except ValueError:
            return False

    def _append(self, batch: list[bytes]) -> None:
        self._first, self._line = self._line + 1, self._line + len(batch)
        content = batch[0] if len(batch) == 1 else b"".join(batch)
        if self._is_json and len(batch) > 1:
            content = b"[%b]" % b",".join(batch)
        if content:
            key = f"{self._base}-{self._line}"
            self._last = self._client.streams.append(self._name, content, key=key, content_type=self._type)
            self._stored += 0 if self._last.replayed else len(batch)
            self._replayed += len(batch) if self._last.replayed else 0

    def _report(self, key: str | None) -> Said:
        last = self._last
        facts = {"name": self._name, "key": key, "stored": self._stored, "replayed": self._replayed}
        facts |= {"next_offset": None if last is None else last.offset, "closed": last is not None and last.is_closed}
        where = "" if last is None else f"; next offset {last.offset}{closing_words(last)}"
        words = f"Stored {self._stored} lines in {self._name}, {self._replayed} already stored (replayed){where}"
        return Said(facts, words)


def closing_words(answer: AppendResult) -> str:
    """What an answer says about the end of the stream."""
    return "; the stream is closed" if answer.is_closed else ""

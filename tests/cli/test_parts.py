"""The parts that are values in, values out: lines, content, tables."""

from __future__ import annotations

import io

import click
import pytest

from semel.cli import source
from semel.cli.output import printable, table


def test_lines_that_arrive_together_are_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "CHUNK_BYTES", 4)
    groups = list(source.line_groups(io.BytesIO(b"1\n2\n3\n\n45678\n9")))
    assert groups == [[b"1\n", b"2\n"], [b"3\n", b"\n"], [b"45678\n"], [b"9"]]
    assert list(source.line_groups(io.BytesIO(b""))) == []
    monkeypatch.setattr(source, "LARGEST_BYTES", 8)
    with pytest.raises(click.ClickException, match="A line is larger than"):
        list(source.line_groups(io.BytesIO(b"1\n" + b"2" * 20)))


def test_what_does_not_print_is_shown_as_its_code() -> None:
    assert printable("a\x1b[31m\u202eb\x9b\udcff é日") == "a\\x1b[31m\\u202eb\\x9b\\udcff é日"


def test_tables_know_wide_letters() -> None:
    lines = [click.unstyle(line) for line in table(("A", "B"), [("日本", "1"), ("e\u0301", "2"), ("abc", "")])]
    assert lines == ["A     B", "日本  1", "e\u0301     2", "abc"]


def test_content_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "LARGEST_BYTES", 4)
    assert source.read_whole(io.BytesIO(b"1234")) == b"1234"
    assert list(source.read_lines(io.BytesIO(b"123\n\nabc"))) == [b"123\n", b"\n", b"abc"]
    with pytest.raises(click.ClickException, match="The content is larger than"):
        source.read_whole(io.BytesIO(b"12345"))
    with pytest.raises(click.ClickException, match="A line is larger than"):
        list(source.read_lines(io.BytesIO(b"123\n1234\n")))

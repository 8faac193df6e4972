"""The documentation says what the code says: tables, links and command lines cannot drift."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import Field
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from docs.generate import limit_names
from docs.limits import CONSTANTS
from docs.metrics import NOTES
from semel.cli.help import DefaultGroup
from semel.cli.main import main
from semel.kernel.errors import REGISTRY
from semel.server.ops.audit_log import CLASSES, LineClass
from semel.server.ops.metrics import AUTH_COUNTS
from semel.server.setting_values import is_secret
from semel.server.settings_loader import ALIASES, PREFIX, setting_fields
from semel.surfaces.jobs.metrics import COUNTS, GAUGES, HITS
from tests.harness.server import RunningServer

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md")))


def tables(page: Path, columns: int) -> list[list[str]]:
    """The rows of a page's tables that have this number of columns, without heads and rules."""
    lines = page.read_text("utf-8").split("\n")
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines if line.startswith("|")]
    heads = {number for number, line in enumerate(lines) if re.fullmatch(r"\|(?:-+\|)+", line)}
    numbers = [number for number, line in enumerate(lines) if line.startswith("|")]
    body = [row for number, row in zip(numbers, rows, strict=True) if number not in heads and number + 1 not in heads]
    return [row for row in body if len(row) == columns]


def code(cell: str) -> str:
    """The first code span of a cell; empty without one."""
    found = re.search(r"`([^`]+)`", cell)
    return "" if found is None else found[1]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_every_error_has_its_row() -> None:
    rows = tables(DOCS / "reference/errors.md", 5)
    assert all(row[4] for row in rows), "a row without advice"
    written = [(code(row[0]), row[1], row[2], row[3]) for row in rows]
    assert written == [(kind.code, str(kind.status), kind.title, kind.retry.value) for kind in REGISTRY.values()]


def test_every_setting_has_its_row() -> None:
    rows = tables(DOCS / "reference/settings.md", 5)
    written = {code(row[0]): (code(row[1]), code(row[2]), code(row[3]) or row[3]) for row in rows}
    wanted = {f"{PREFIX}{one.name.upper()}": (flag_of(one), one.name, shown(one.default)) for one in setting_fields()}
    assert written == wanted
    assert len(rows) == len(written), "a setting has two rows"


def flag_of(one: Field[Any]) -> str:
    """The flag of a setting; secrets have none."""
    return "" if is_secret(one) else "--" + one.name.replace("_", "-")


def test_every_other_name_of_a_setting_has_its_row() -> None:
    rows = tables(DOCS / "reference/settings.md", 2)
    written = {code(row[0]): tuple(re.findall(r"`([^`]+)`", row[1])) for row in rows}
    assert written == {f"{PREFIX}{name.upper()}": aliases for name, aliases in ALIASES.items()}


def test_every_count_has_its_names_in_json() -> None:
    rows = tables(DOCS / "operating/metrics.md", 2)
    written = {tuple(re.findall(r"`(\w+)`", row[0])): code(row[1]) for row in rows if "`semel_" in row[1]}
    counts = (*COUNTS, *AUTH_COUNTS)
    wanted = {one.json: f"{one.series}_total" for one in counts if one.json} | {one.json: one.series for one in GAUGES}
    assert written == {**wanted, (HITS,): "semel_jobs_idempotent_total"}


def shown(default: object) -> str:
    """A default as the page writes it."""
    if default == "":
        return "(empty)"
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_every_limit_of_the_code_has_its_row() -> None:
    names = [row[0] for row in tables(DOCS / "reference/limits.md", 5)]
    assert set(CONSTANTS) <= set(names)
    assert len(set(names)) == len(names), "a limit has two rows"
    assert limit_names((DOCS / "reference/limits.md").read_text("utf-8")) == names, "a number is not generated"


def test_b2_every_audit_event_has_its_row_and_its_class() -> None:
    rows = {code(row[0]): row[3] for row in tables(DOCS / "operating/audit.md", 4) if code(row[0]).isupper()}
    assert set(rows) == set(CLASSES)
    marks = {LineClass.IMPORTANT: "important", LineClass.PACED: "paced", LineClass.RARE: "rarely"}
    for event, kind in CLASSES.items():
        told = [mark for mark in marks.values() if mark in rows[event]]
        assert told == ([marks[kind]] if kind in marks else []), event


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The kinds of all metrics that a running server tells, by name."""
    with RunningServer(tmp_path_factory.mktemp("docs") / "data") as server:
        text = httpx.get(server.url + "/metrics", headers={"Accept": "text/plain"}).text
    told = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
    return {name: kind for name, kind in told if not name.endswith("_created")}


def test_every_metric_has_its_row(metrics: dict[str, str]) -> None:
    rows = tables(DOCS / "operating/metrics.md", 4)
    assert {code(row[0]): row[1] for row in rows if row[1] in ("counter", "gauge", "histogram")} == metrics


def test_no_words_are_written_for_a_metric_that_is_not_there(metrics: dict[str, str]) -> None:
    assert set(NOTES) <= set(metrics)


def test_no_page_names_a_metric_that_is_not_there(metrics: dict[str, str]) -> None:
    named = {name for page in PAGES for name in re.findall(r"\bsemel_[a-z_]+", prose(page))}
    tables_of_the_library = {"semel_once", "semel_outbox", "semel_event_outbox", "semel_cursor"}
    assert named - tables_of_the_library <= set(metrics)


VAGUE = re.compile(r"\b(?:so many|so much|nobody|somebody|whoever|such a one|what it is to know)\b", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_who_and_how_many(page: Path) -> None:
    """Where a limit, a caller, a client or a node is meant, the page names it."""
    words = re.sub(r"\s+", " ", re.sub(r"`[^`]*`", "", prose(page)))
    assert VAGUE.findall(words) == []


def links(page: Path) -> Iterator[str]:
    """Where a page leads to, but for other sites."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no such file"
        assert not anchor or anchor in anchors(target), f"{link}: there is no such heading"


def test_the_map_shows_every_page() -> None:
    index = DOCS / "index.md"
    shown_pages = {(DOCS / link.partition("#")[0]).resolve() for link in links(index)}
    assert set(DOCS.rglob("*.md")) - {index} <= shown_pages


def command_lines(page: Path) -> Iterator[list[str]]:
    """The `semel` commands in a page's code blocks, as words; what the page gives a name to is put in for the name."""
    named: dict[str, str] = {}
    for block in re.findall(r"^```console$(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").split("\n"):
            given = re.fullmatch(r"\$ ([A-Z]+)=(\w+)", line)
            if given:
                named[given[1]] = given[2]
            elif line.startswith("$ "):
                filled = re.sub(r"\$([A-Z]+)", lambda found: named.get(found[1], found[0]), line[2:])
                lexer = shlex.shlex(filled, posix=True, punctuation_chars="|")
                lexer.whitespace_split = True
                words = list(lexer)
                if "|" in words:
                    words = words[words.index("|") + 1 :]
                if Path(words[0]).name == "semel":
                    yield words[1:]


COMMANDS = [(page.relative_to(ROOT), words) for page in PAGES for words in command_lines(page)]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=lambda value: " ".join(value) if type(value) is list else "")
def test_command_lines_parse(page: Path, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shown command exists, with its options and arguments; nothing is run."""
    monkeypatch.chdir(tmp_path)
    for option, value in pairwise(words):
        if option == "--file":
            Path(value).touch()
    command: click.Command = main
    context = click.Context(main, **main.context_settings)
    rest = list(words)
    while isinstance(command, click.Group) and not rest[0].startswith("-"):
        rest = command.completed(context, rest) if isinstance(command, DefaultGroup) else rest
        found = command.get_command(context, rest[0])
        assert found is not None, f"{page}: there is no command {rest[0]}"
        command, rest = found, rest[1:]
    try:
        # With the parent's names of the help option: a command keeps those of its first context.
        with command.make_context("semel", list(rest), parent=None if command is main else context):
            assert not isinstance(command, click.Group), f"{page}: {words} names no command"
    except click.exceptions.Exit:
        assert rest in (["--help"], ["--version"])


def test_command_lines_were_found() -> None:
    assert {str(page) for page, _ in COMMANDS} >= {"README.md", "docs/reference/cli.md", "docs/operating/running.md"}


def test_the_reference_shows_every_command() -> None:
    page = (DOCS / "reference/cli.md").read_text("utf-8")
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        parts = command.list_commands(context) if isinstance(command, click.Group) else [""]
        for part in parts:
            assert f"## semel {name} {part}".rstrip() in page

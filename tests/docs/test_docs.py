"""What pages name exists: files, headings, commands, settings, metrics, classes and modules."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import click
import pytest

from docs.metrics import exposed, full_name
from docs.site.navigation import MOST_PAGES, all_pages
from semel.cli.help import DefaultGroup
from semel.cli.main import main
from semel.server.settings_loader import ALIASES, PREFIX, setting_fields
from tests.docs.fences import fences
from tests.docs.markdown import DOCS, LINKED, NAMES, PAGES, ROOT, anchors, links, prose, spans
from tests.docs.shell import commands

SOURCE = ROOT / "src/semel"


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    assert wrong == []


def test_a_reader_can_survey_the_pages() -> None:
    assert len(list(DOCS.rglob("*.md"))) <= MOST_PAGES


def test_every_page_has_one_place() -> None:
    named = [entry.path for entry in all_pages()]
    assert len(set(named)) == len(named)


# -- commands ----------------------------------------------------------------------------------------------------------


def parsed(words: list[str]) -> str | None:
    """What is wrong with a command of `semel` and its options; nothing is run."""
    command: click.Command = main
    context = click.Context(main, **main.context_settings)
    rest = list(words)
    while isinstance(command, click.Group) and rest and (rest[0] == "-" or not rest[0].startswith("-")):
        rest = command.completed(context, rest) if isinstance(command, DefaultGroup) else rest
        found = command.get_command(context, rest[0])
        if found is None:
            return f"there is no command {rest[0]}"
        command, rest = found, rest[1:]
    if isinstance(command, click.Group) and not rest:
        return "it names no command"
    try:
        # With the parent's names of the help option: a command keeps those of its first context.
        with command.make_context("semel", list(rest), parent=None if command is main else context):
            return None
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        return error.format_message()


def not_run(page: Path) -> list[list[str]]:
    """The `semel` commands of a page that nobody runs, as words."""
    found = []
    for fence in fences(page.read_text("utf-8")):
        if fence.language == "console" and fence.reason:
            for one in commands(fence.text, fence.line):
                for part in re.split(r" \|\|? | && ", one.text.replace("\\\n", " ")):
                    words = [word for word in shlex.split(part) if not re.match(r"[A-Z_]+=", word)]
                    found += [words[1:]] if words and Path(words[0]).name == "semel" else []
    return found


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_command_that_is_not_run_has_known_options(page: Path) -> None:
    assert [(words, wrong) for words in not_run(page) if (wrong := parsed(words))] == []


def test_a_wrong_command_is_noticed() -> None:
    assert parsed(["streams", "reed", "orders"]) == "there is no command reed"
    assert "--hots" in (parsed(["serve", "--hots", "a"]) or "")
    assert parsed(["streams"]) == "it names no command"
    assert parsed(["streams", "ls"]) is None


TRACED = {"semel commit", "semel events message", "semel deltas message", "semel jobs run"}
"""Names of spans that are no commands."""


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_command_in_the_text_exists(page: Path) -> None:
    """Code such as `semel streams fork`, with or without arguments."""
    wrong = []
    for span in spans(page) - TRACED:
        command: click.Command = main
        for name in re.findall(r"(?<= )[a-z]+(?=[ ]|$)", span) if span.startswith("semel ") else ():
            if not isinstance(command, click.Group) or isinstance(command, DefaultGroup):
                break
            found = command.get_command(click.Context(main), name)
            wrong += [] if found else [span]
            command = found or click.Command("unknown")
    assert wrong == []


# -- names -------------------------------------------------------------------------------------------------------------

VARIABLES = {
    *(f"{PREFIX}{name.upper()}" for name in (*(one.name for one in setting_fields()), *ALIASES)),
    *(alias for aliases in ALIASES.values() for alias in aliases),
}


@cache
def words_of(folder: str, pattern: str) -> set[str]:
    """What a folder of the source says of this form."""
    files = [path for end in ("py", "proto", "yaml") for path in (ROOT / folder).rglob(f"*.{end}")]
    return {word for path in files for word in re.findall(pattern, path.read_text("utf-8"))}


def test_a_variable_that_is_named_exists() -> None:
    pattern = r"\bSEMEL_[A-Z_]*[A-Z]\b"
    named = {name for page in PAGES for name in re.findall(pattern, prose(page)) if "SEMEL_PROXY_" not in name}
    assert named - VARIABLES - words_of("src/semel", pattern) == set()


def test_a_metric_or_table_that_is_named_exists() -> None:
    pattern = r"\bsemel_[a-z_]+"
    named = {name for page in PAGES for name in re.findall(pattern, prose(page))}
    known = {full_name(one) for one in exposed()} | words_of("src/semel", pattern)
    assert {re.sub("_(?:bucket|count|sum)$", "", name) for name in named} - known == set()


def test_a_class_of_errors_that_is_named_exists() -> None:
    named = {
        span for page in PAGES for span in spans(page) if re.fullmatch(r"(?:\w+\.)*[A-Z]\w+(?:Error|Unknown)", span)
    }
    known = words_of("src/semel", r"\b\w+(?:Error|Unknown)\b") | words_of("tests/harness", r"(?<=class )\w+Error\b")
    known |= words_of("deploy/prometheus", r"(?<=alert: )\w+")
    assert {name for name in named if name.rpartition(".")[2] not in known} == set()


# -- files -------------------------------------------------------------------------------------------------------------


@cache
def places() -> set[str]:
    """Every file and folder of the project, and what their paths end with."""
    folders = ("bench", "deploy", "docs", "examples", "src", "tests")
    found = [one.relative_to(ROOT).parts for folder in folders for one in (ROOT / folder).rglob("*")]
    return {"/".join(parts[start:]) for parts in found for start in range(len(parts))}


def paths(page: Path) -> set[str]:
    """Python files and folders of the source that a page names in code spans, without the names of tests in them."""
    found = {span.partition("::")[0] for span in spans(page)}
    files = {span for span in found if re.fullmatch(r"[\w./]+/[\w./]+\.py", span)}
    roots = "|".join(path.name for path in sorted(SOURCE.iterdir()) if path.is_dir() and path.name != "once")
    return files | {span for span in found if re.fullmatch(rf"(?:src/semel|{roots}|tests)(?:/\w+)+/?", span)}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_path_that_is_named_exists(page: Path) -> None:
    assert {name.rstrip("/") for name in paths(page)} - places() == set()

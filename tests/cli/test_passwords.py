"""No command and no entry of the library repeats the password of a URL, whatever is wrong with the URL."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from semel.cli.main import main
from semel.client import AsyncClient, Client, EventOutbox
from semel.kernel.shown_url import shown_url
from semel.once import Once, Outbox
from semel.server.setting_lines import setting_facts
from semel.server.settings_loader import make_settings
from semel.store.open import inspect_store, namespaces_at, open_store, place_of, shown
from tests.cli.command import commands

SECRET = "hunter2"
MALFORMED = (
    f"postgresql://u:{SECRET}@ss:w/x",
    f"postgres://u:{SECRET}@[::1",
    f"postgresql://u:{SECRET}@[::1]:99999/x",
    f"postgresql://u:{SECRET}@h@k/x",
    f"postgresql://u:p/{SECRET}@h:x/y",
    f"postgresql://u:p?{SECRET}@h:x/y",
    f"postgresql://u:p#{SECRET}@h:x/y",
    f"postgresql://u:%zz{SECRET}@h/x",
    f"postgresql://u:%00{SECRET}@h/x",
    f"postgresql://u:{SECRET}",
    f"postgresql://u:{SECRET}/x",
    f"postgresql://h:port/x?user=u&password={SECRET}",
    f"postgresql://h/x?{SECRET}",
    f"postgresql://h/x?lanes={SECRET}",
    f"postgresql:u:{SECRET}@h/x",
    f"postgresql+psycopg://u:{SECRET}@h/x",
    f"mysql://u:{SECRET}@h/x",
    f"u:{SECRET}@h/x",
    f"//u:{SECRET}@h/x",
    f"host=127.0.0.1 port=1 user=u password={SECRET} dbname=x",
    f"password = '{SECRET}' host=127.0.0.1",
    f"http://u:{SECRET}@127.0.0.1:1",
    f"http://u:{SECRET}@[::1",
    f"http://u:{SECRET}",
    f"https://127.0.0.1:1/?token={SECRET}",
)
WELL_FORMED = (
    f"postgresql://u:{SECRET}@127.0.0.1:1/x?connect_timeout=2",
    f"postgresql://u:%68%75{SECRET}@127.0.0.1:1/x?connect_timeout=2",
    f"postgresql://127.0.0.1:1/x?user=u&password={SECRET}&connect_timeout=2",
)
"""Nothing listens there."""
TAKERS = ("store", "place", "source", "target", "url", "upstream")


def is_taker(one: click.Parameter, path: tuple[str, ...]) -> bool:
    """Whether a parameter is the URL of a store or of a server."""
    return one.name == "url" or (one.name in TAKERS and path[0] not in NAMED)


NAMED = ("find", "worker", "jobs", "ledger", "deltas", "streams", "events")
"""Commands that talk to a server: their places, sources and targets are names."""
UNREACHED = (("once", "init"), ("outbox", "ls"), ("check",), ("config", "show"), ("backup", "create"))
"""Commands that are tried with a database that does not answer, too."""
EVERY = [
    pytest.param(path, one.name, id=" ".join((*path, str(one.name))))
    for path, command in commands(main)
    for one in command.params
    if is_taker(one, path)
]


def words_of(command: click.Command, given: str, url: str) -> list[str]:
    """Arguments of a command: this URL for one parameter, and something for each other that is required."""
    words: list[str] = []
    for one in command.params:
        value = url if one.name == given else "sqlite:other" if one.name in TAKERS else "1"
        if one.name == given or one.required:
            words += [value] if isinstance(one, click.Argument) else [one.opts[0], value]
        elif one.name == "once":
            words.append("--once")  # else a command whose URL is well-formed goes on until it is stopped
    return words


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    for name in ("SEMEL_URL", "SEMEL_STORE", "SEMEL_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return CliRunner()


@pytest.mark.parametrize(("path", "parameter"), EVERY)
def test_no_command_prints_the_password_of_a_malformed_url(
    path: tuple[str, ...], parameter: str, runner: CliRunner, tmp_path: Path
) -> None:
    command = dict(commands(main))[path]
    told = []
    urls = (*MALFORMED, *WELL_FORMED) if path in UNREACHED else MALFORMED
    for url in urls:
        answer = runner.invoke(main, [*path, *words_of(command, parameter, url)], input="")
        raised = "".join(traceback.format_exception(answer.exception)) if answer.exception else ""
        is_fault = answer.exception is not None and not isinstance(answer.exception, SystemExit)
        if SECRET in answer.output or (is_fault and SECRET in raised):
            told.append(f"{url}: {answer.output or raised}")
    assert not told, "\n".join(told)
    assert not [name for name in tmp_path.rglob("*") if SECRET in name.name]


def leaks(entry: Callable[[str], object], url: str) -> bool:
    """Whether an entry of the library shows the password of a URL, in an error or in what it gives."""
    try:
        given = entry(url)
    except Exception as error:  # noqa: BLE001 - which one is not asked here
        return SECRET in "".join(traceback.format_exception(error))
    return SECRET in f"{given} {given!r}"


def asked(url: str) -> object:
    """A store of receipts whose table is made."""
    once = Once(url)
    try:
        once.store.create()
        return once
    finally:
        once.close()


def posted(url: str) -> object:
    """The first use of an outbox."""
    box = Outbox(url)
    try:
        return list(box.messages())
    finally:
        box.close()


def opened(url: str) -> object:
    """A store of the server that is opened."""
    store = open_store(url, (), (), lambda: 0)
    store.close()
    return store


ENTRIES: Mapping[str, Callable[[str], object]] = {
    "Once": asked,
    "Outbox": posted,
    "Outbox.post": lambda url: Outbox(":memory:").post(url, key="k"),
    "EventOutbox": lambda url: EventOutbox(url, Client()),
    "Client": Client,
    "AsyncClient": AsyncClient,
    "open_store": opened,
    "inspect_store": lambda url: inspect_store(url, ()),
    "place_of": lambda url: place_of(url) and "",
    "namespaces_at": namespaces_at,
    "shown": shown,
    "settings": lambda url: setting_facts(make_settings(store=url), {}),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_no_entry_of_the_library_shows_the_password_of_a_url(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = [url for url in (*MALFORMED, *WELL_FORMED) if leaks(ENTRIES[name], url)]
    assert not told, "\n".join(told)
    assert not [path for path in tmp_path.rglob("*") if SECRET in path.name]


@pytest.mark.parametrize("url", [*MALFORMED, *WELL_FORMED])
def test_a_shown_url_has_no_password(url: str) -> None:
    assert SECRET not in shown_url(url)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        (
            f"postgresql://u:{SECRET}@db.example.com:5432/semel?sslmode=require",
            "postgresql://db.example.com:5432/semel",
        ),
        (f"postgres://u:{SECRET}@one:1,[::1]:2/x", "postgres://one:1,[::1]:2/x"),
        ("postgresql:///x", "postgresql:///x"),
        ("receipts.db", "receipts.db"),
        ("/var/lib/a b/receipts@home.db", "/var/lib/a b/receipts@home.db"),
        ("file:receipts.db?mode=ro", "file:receipts.db?mode=ro"),
        (f"postgresql://u:{SECRET}", "postgresql://..."),
        (f"password={SECRET}", "..."),
    ],
)
def test_a_shown_url_tells_where_a_store_is(url: str, text: str) -> None:
    assert shown_url(url) == text

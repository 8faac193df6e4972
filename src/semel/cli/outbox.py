"""`semel outbox`: delivers the messages of an outbox, lists them, and retries or drops those that were refused.

Headers, bodies and queries of URLs are not shown. Many messages are changed only after a confirmation or with `--yes`.
"""

from __future__ import annotations

import functools
import json
import logging
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from semel.cli.help import HelpGroup
from semel.cli.output import printable, progress, say, table, with_json
from semel.once import Flushed, LetterState, LetterStatus, OnceError, Outbox
from semel.once.message_table import TABLE
from semel.once.messages import MAX_ATTEMPTS

__all__ = ["outbox"]

Command = TypeVar("Command", bound=Callable[..., Any])


def with_place(command: Command) -> Command:
    """Adds PLACE and `--table`."""
    table = click.option("--table", default=TABLE, metavar="NAME", help=f"Name of the table of letters.  [{TABLE}]")
    return click.argument("place", metavar="PLACE")(table(command))


@contextmanager
def opened(place: str, table: str, **options: Any) -> Iterator[Outbox]:
    """The outbox at a place; a file that is not there is not made by looking at it."""
    if "://" not in place:
        _check_file(place, table)
    with failures_told():
        box = Outbox(place, table=table, **options)
        try:
            yield box
        finally:
            box.close()


@contextmanager
def failures_told() -> Iterator[None]:
    """Errors of the outbox as errors of a command."""
    try:
        yield
    except OnceError as error:
        raise click.ClickException(printable(str(error))) from error
    except ImportError as error:
        raise click.ClickException(
            f"PostgreSQL needs the driver psycopg: install semel[postgres] ({error})."
        ) from error


def _check_file(place: str, table: str) -> None:
    path = Path(place)
    if not path.is_file():
        raise click.ClickException(f"There is no outbox at {printable(place)}: `semel outbox init` makes one.")
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise click.ClickException(f"{printable(place)} is no outbox: {error}.") from error
    if not found:
        raise click.ClickException(f"{printable(place)} has no table {table}: `semel outbox init` makes it.")


def with_outbox(command: Callable[..., None]) -> Callable[..., None]:
    """Adds PLACE and `--table`, and hands the command the outbox."""

    @with_place
    @functools.wraps(command)
    def opening(*args: Any, place: str, table: str, **rest: Any) -> None:
        with opened(place, table) as box:
            command(*args, box=box, **rest)

    return opening


HEAD = ("KEY", "STATE", "TRIES", "STATUS", "NEXT", "ORDER", "TO", "ERROR")
COLOURS = {"done": "green", "poison": "red", "sent": "yellow"}
DEFAULT = 100


@click.command()
@with_outbox
@click.option(
    "--state", type=click.Choice([state.value for state in LetterState]), help="List only those in this state."
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"Limit of letters to list.  [{DEFAULT}]")
@click.option("--all", "is_all", is_flag=True, help="List all, without a limit.")
@with_json
def ls(box: Outbox, state: str | None, limit: int | None, is_all: bool, as_json: bool) -> None:
    """List the letters of an outbox, the oldest first. PLACE is a file or a postgresql:// URL."""
    if is_all and limit is not None:
        raise click.UsageError("Give --limit or --all, not both.")
    most = None if is_all else limit or DEFAULT
    letters = box.letters(state)
    if as_json:
        for letter in islice(letters, most):
            click.echo(json.dumps(facts_of(letter)))
    else:
        show(islice(letters, most))
    if next(letters, None) is not None:
        click.echo(f"There are more than {most}: give --limit or --all.", err=True)


def facts_of(letter: LetterStatus) -> dict[str, Any]:
    """A letter as programs read it."""
    return letter._asdict()


def show(letters: Iterable[LetterStatus]) -> None:
    """Letters as people read them."""
    found = list(letters)
    if not found:
        click.echo("There are no such letters.", err=True)
        return
    head, *lines = table(HEAD, [_row(letter) for letter in found])
    click.echo(head)
    for line, letter in zip(lines, found, strict=True):
        click.echo(click.style(line, fg=COLOURS.get(letter.state)))


def _row(letter: LetterStatus) -> tuple[str, ...]:
    wait = f"{letter.wait_seconds:.0f} s" if letter.wait_seconds > 0 else "now" if letter.state == "queued" else ""
    status = "" if letter.status is None else str(letter.status)
    to = f"{letter.method} {letter.url}"
    cells = (
        letter.key,
        letter.state,
        str(letter.attempts),
        status,
        wait,
        letter.order_by or "",
        to,
        letter.error or "",
    )
    return tuple(printable(cell) for cell in cells)


class CliOutboxChange(NamedTuple):
    """A change of letters, in words."""

    verb: str
    past: str
    label: str
    carry_out: Callable[[str], bool]


@click.command()
@with_outbox
@click.argument("keys", nargs=-1, metavar="KEY...")
@click.option("--poison", is_flag=True, help="Take all letters that were set aside as poison.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent again, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_json
def retry(box: Outbox, keys: tuple[str, ...], poison: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Send letters again now, with the same keys. PLACE is a file or a postgresql:// URL."""
    _apply(box, CliOutboxChange("Send again", "Queued", "Queueing", box.retry), keys, poison, dry_run, yes, as_json)


@click.command()
@with_outbox
@click.argument("keys", nargs=-1, metavar="KEY...")
@click.option("--poison", is_flag=True, help="Take all letters that were set aside as poison.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_json
def drop(box: Outbox, keys: tuple[str, ...], poison: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove letters that were not delivered. PLACE is a file or a postgresql:// URL."""
    _apply(box, CliOutboxChange("Drop", "Dropped", "Dropping", box.drop), keys, poison, dry_run, yes, as_json)


def _apply(
    box: Outbox, change: CliOutboxChange, keys: tuple[str, ...], poison: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    if poison == bool(keys):
        raise click.UsageError("Name letters by their keys, or give --poison for those that were set aside.")
    is_many = poison or len(keys) > 1
    if is_many and not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Many letters would be changed: say --yes if standard input is not a terminal.")
    found = list(box.letters("poison")) if poison else [_named(box, key) for key in keys]
    if dry_run:
        _plan(change, found, as_json)
        return
    if len(found) > 1 and not yes:
        show(found)
        click.confirm(f"{change.verb} these {len(found)} letters?", abort=True, err=True)
    _carry_out(change, found, as_json)


def _named(box: Outbox, key: str) -> LetterStatus:
    found = box.status(key)
    if found is None:
        raise click.ClickException(f"There is no letter with the key {printable(key)}.")
    return found


def _plan(change: CliOutboxChange, found: list[LetterStatus], as_json: bool) -> None:
    if as_json:
        for letter in found:
            click.echo(json.dumps({"key": letter.key, change.past.lower(): False, "dry_run": True}))
        return
    if found:
        show(found)
    click.echo(f"Would {change.verb.lower()} {len(found)} letters.")


def _carry_out(change: CliOutboxChange, found: list[LetterStatus], as_json: bool) -> None:
    done = 0
    with progress(len(found) if len(found) > 1 else None, change.label) as advance:
        for letter in found:
            is_done = change.carry_out(letter.key)
            done += is_done
            if as_json:
                click.echo(json.dumps({"key": letter.key, change.past.lower(): is_done, "dry_run": False}))
            elif not is_done:
                click.echo(f"{printable(letter.key)} is done, or being sent: it was left as it is.", err=True)
            advance(1)
    if not as_json:
        what = printable(found[0].key) if done == len(found) == 1 else f"{done} letters"
        click.echo(f"{change.past} {what}")
    if done < len(found):
        raise click.ClickException(f"{len(found) - done} of {len(found)} letters were left as they are.")


MARGIN_SECONDS = 30.0
"""By how much a lease is longer than one try."""


@click.command()
@with_place
@click.option("--once", "is_once", is_flag=True, help="Exit when no letter is left that can be sent.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=60.0,
    metavar="N",
    help="With --once: exit after this time at the latest, in seconds.  [60]",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    default=8,
    metavar="N",
    help="Limit of letters that are sent at once.  [8]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1, 3_600),
    default=30.0,
    metavar="SECONDS",
    help="Time limit of one delivery attempt, in seconds.  [30]",
)
@click.option(
    "--max-attempts",
    type=click.IntRange(1, 10_000),
    default=MAX_ATTEMPTS,
    metavar="N",
    help=f"Failed attempts after which a letter is set aside as poison.  [{MAX_ATTEMPTS}]",
)
@with_json
def run(
    place: str,
    table: str,
    is_once: bool,
    seconds: float,
    concurrency: int,
    timeout: float,
    max_attempts: int,
    as_json: bool,
) -> None:
    """Deliver the letters of an outbox until SIGTERM or Control-C. PLACE is a file or a postgresql:// URL.

    It may be run many times at once: each letter is sent by one of them. A second signal ends it at once.
    """
    _tell_on_stderr()
    limits = {"concurrency": concurrency, "timeout": timeout, "lease": timeout + MARGIN_SECONDS}
    with opened(place, table, max_attempts=max_attempts, **limits) as box:
        box.status("")  # a table that is missing is told before anything is said to run
        if not is_once:
            click.echo("Delivering letters; Control-C stops it.", err=True)
        found = _delivered(box, seconds if is_once else None)
    words = f"Delivered {found.delivered} letters; {found.failed} tries failed, {found.poisoned} letters set aside."
    say(as_json, found._asdict(), words)
    if is_once and found.left:
        raise click.ClickException(
            "Letters are left that could not be sent yet: run it again, or see `semel outbox ls`."
        )


@click.command()
@with_place
@with_json
def init(place: str, table: str, as_json: bool) -> None:
    """Create the tables of an outbox if they do not exist. PLACE is a file or a postgresql:// URL."""
    with failures_told():
        box = Outbox(place, table=table)
        try:
            box.store.create()
        finally:
            box.close()
    shown = place if "://" not in place else "the database"
    say(as_json, {"table": table, "ready": True}, f"The table {table} is ready in {printable(shown)}")


def _delivered(box: Outbox, seconds: float | None) -> Flushed:
    """In a thread, so that a signal finds this one waiting for nothing but its end."""
    found: list[Flushed | BaseException] = []

    def work() -> None:
        try:
            found.append(box.run() if seconds is None else box.flush_sync(seconds))
        except BaseException as error:  # noqa: BLE001 - it is raised where it is looked at
            found.append(error)

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        box.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        thread = threading.Thread(target=work, name="semel-outbox-run", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.2)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    result = found[0]
    if isinstance(result, BaseException):
        raise result
    return result


def _tell_on_stderr() -> None:
    """Log the events of letters to standard error, a line each."""
    log = logging.getLogger("semel.outbox")
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


@click.group(cls=HelpGroup)
def outbox() -> None:
    """Outbox: requests that are stored first and sent until they are answered."""


for _command in (drop, init, ls, retry, run):
    outbox.add_command(_command)

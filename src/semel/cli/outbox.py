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
from semel.once import Flushed, MessageState, MessageStatus, OnceError, Outbox
from semel.once.message_table import TABLE
from semel.once.messages import MAX_ATTEMPTS

__all__ = ["outbox"]

Command = TypeVar("Command", bound=Callable[..., Any])


def with_place(command: Command) -> Command:
    """Adds PLACE and `--table`."""
    table = click.option("--table", default=TABLE, metavar="NAME", help=f"Name of the table of messages.  [{TABLE}]")
    return click.argument("place", metavar="PLACE")(table(command))


@contextmanager
def opened(place: str, table: str, **options: Any) -> Iterator[Outbox]:
    """The outbox at a place. A missing file is an error: only `init` creates one."""
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
    """Turn errors of the outbox into errors of the command."""
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
        raise click.ClickException(f"There is no outbox at {printable(place)}: create it with `semel outbox init`.")
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall()
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise click.ClickException(f"{printable(place)} is not an outbox: {error}.") from error
    if not found:
        raise click.ClickException(f"{printable(place)} has no table {table}: create it with `semel outbox init`.")


def with_outbox(command: Callable[..., None]) -> Callable[..., None]:
    """Adds PLACE and `--table`, and passes the opened outbox to the command."""

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
    "--state", type=click.Choice([state.value for state in MessageState]), help="List only messages in this state."
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help=f"Maximum messages to list.  [{DEFAULT}]")
@click.option("--all", "is_all", is_flag=True, help="List all messages.")
@with_json
def ls(box: Outbox, state: str | None, limit: int | None, is_all: bool, as_json: bool) -> None:
    """List the messages of an outbox, oldest first. PLACE is a file or a postgresql:// URL."""
    if is_all and limit is not None:
        raise click.UsageError("Give --limit or --all, not both.")
    most = None if is_all else limit or DEFAULT
    messages = box.messages(state)
    if as_json:
        for message in islice(messages, most):
            click.echo(json.dumps(facts_of(message)))
    else:
        show(islice(messages, most))
    if next(messages, None) is not None:
        click.echo(f"There are more than {most} messages: give a higher --limit, or --all.", err=True)


def facts_of(message: MessageStatus) -> dict[str, Any]:
    """A message as a JSON object."""
    return message._asdict()


def show(messages: Iterable[MessageStatus]) -> None:
    """Print messages as a table."""
    found = list(messages)
    if not found:
        click.echo("No messages match.", err=True)
        return
    head, *lines = table(HEAD, [_row(message) for message in found])
    click.echo(head)
    for line, message in zip(lines, found, strict=True):
        click.echo(click.style(line, fg=COLOURS.get(message.state)))


def _row(message: MessageStatus) -> tuple[str, ...]:
    wait = f"{message.wait_seconds:.0f} s" if message.wait_seconds > 0 else "now" if message.state == "queued" else ""
    status = "" if message.status is None else str(message.status)
    to = f"{message.method} {message.url}"
    cells = (
        message.key,
        message.state,
        str(message.attempts),
        status,
        wait,
        message.order_by or "",
        to,
        message.error or "",
    )
    return tuple(printable(cell) for cell in cells)


class CliOutboxChange(NamedTuple):
    """A change of messages, and the words that report it."""

    verb: str
    past: str
    label: str
    carry_out: Callable[[str], bool]


@click.command()
@with_outbox
@click.argument("keys", nargs=-1, metavar="KEY...")
@click.option("--poison", is_flag=True, help="Select all poison messages.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent again, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_json
def retry(box: Outbox, keys: tuple[str, ...], poison: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Send messages again now, with the same keys. PLACE is a file or a postgresql:// URL."""
    _apply(box, CliOutboxChange("Send again", "Queued", "Queueing", box.retry), keys, poison, dry_run, yes, as_json)


@click.command()
@with_outbox
@click.argument("keys", nargs=-1, metavar="KEY...")
@click.option("--poison", is_flag=True, help="Select all poison messages.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_json
def drop(box: Outbox, keys: tuple[str, ...], poison: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete undelivered messages. PLACE is a file or a postgresql:// URL."""
    _apply(box, CliOutboxChange("Drop", "Dropped", "Dropping", box.drop), keys, poison, dry_run, yes, as_json)


def _apply(
    box: Outbox, change: CliOutboxChange, keys: tuple[str, ...], poison: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    if poison == bool(keys):
        raise click.UsageError("Give message keys, or --poison for all poison messages, not both.")
    is_many = poison or len(keys) > 1
    if is_many and not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Standard input is not a terminal: give --yes to change more than one message.")
    found = list(box.messages("poison")) if poison else [_named(box, key) for key in keys]
    if dry_run:
        _plan(change, found, as_json)
        return
    if len(found) > 1 and not yes:
        show(found)
        click.confirm(f"{change.verb} these {len(found)} messages?", abort=True, err=True)
    _carry_out(change, found, as_json)


def _named(box: Outbox, key: str) -> MessageStatus:
    found = box.status(key)
    if found is None:
        raise click.ClickException(f"There is no message with the key {printable(key)}.")
    return found


def _plan(change: CliOutboxChange, found: list[MessageStatus], as_json: bool) -> None:
    if as_json:
        for message in found:
            click.echo(json.dumps({"key": message.key, change.past.lower(): False, "dry_run": True}))
        return
    if found:
        show(found)
    click.echo(f"Would {change.verb.lower()} {len(found)} messages.")


def _carry_out(change: CliOutboxChange, found: list[MessageStatus], as_json: bool) -> None:
    done = 0
    with progress(len(found) if len(found) > 1 else None, change.label) as advance:
        for message in found:
            is_done = change.carry_out(message.key)
            done += is_done
            if as_json:
                click.echo(json.dumps({"key": message.key, change.past.lower(): is_done, "dry_run": False}))
            elif not is_done:
                click.echo(f"{printable(message.key)} is delivered or being sent: it was not changed.", err=True)
            advance(1)
    if not as_json:
        what = printable(found[0].key) if done == len(found) == 1 else f"{done} messages"
        click.echo(f"{change.past} {what}")
    if done < len(found):
        raise click.ClickException(f"{len(found) - done} of {len(found)} messages were not changed.")


MARGIN_SECONDS = 30.0
"""How much longer a lease is than one attempt."""


@click.command()
@with_place
@click.option("--once", "is_once", is_flag=True, help="Exit when no message can be sent any more.")
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
    help="Maximum number of concurrent deliveries.  [8]",
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
    help=f"Failed attempts after which a message is set aside as poison.  [{MAX_ATTEMPTS}]",
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
    """Deliver the messages of an outbox until SIGTERM or Control-C. PLACE is a file or a postgresql:// URL.

    Several processes may deliver one outbox: each message is sent by one of them. A second signal exits at once.
    """
    _tell_on_stderr()
    limits = {"concurrency": concurrency, "timeout": timeout, "lease": timeout + MARGIN_SECONDS}
    with opened(place, table, max_attempts=max_attempts, **limits) as box:
        box.status("")  # fail on a missing table before "Delivering" is printed
        if not is_once:
            click.echo("Delivering messages; Control-C stops it.", err=True)
        found = _delivered(box, seconds if is_once else None)
    words = f"Delivered {found.delivered} messages; {found.failed} attempts failed, {found.poisoned} became poison."
    say(as_json, found._asdict(), words)
    if is_once and found.left:
        raise click.ClickException("Some messages could not be sent yet: run this again, or see `semel outbox ls`.")


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
    """Deliver in a thread, so that the main thread can handle signals at once."""
    found: list[Flushed | BaseException] = []

    def work() -> None:
        try:
            found.append(box.run() if seconds is None else box.flush_sync(seconds))
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
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
    """Log deliveries to standard error, one line each."""
    log = logging.getLogger("semel.outbox")
    if not log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)


@click.group(cls=HelpGroup)
def outbox() -> None:
    """Outbox: requests that are stored first, then sent until they are answered."""


for _command in (drop, init, ls, retry, run):
    outbox.add_command(_command)

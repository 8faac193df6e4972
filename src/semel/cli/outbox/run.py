"""`semel outbox run` and `semel outbox init`: deliver the letters of an outbox, and create one."""

from __future__ import annotations

import logging
import signal
import threading

import click

from semel.cli.outbox.place import failures_told, opened, with_place
from semel.cli.output import printable, say, with_json
from semel.once import Flushed, Outbox
from semel.once.letters import MAX_ATTEMPTS

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

"""`semel outbox ls`: list the letters of an outbox. Headers, bodies and queries of URLs are not shown."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any

import click

from semel.cli.outbox.place import with_outbox
from semel.cli.output import printable, table, with_json
from semel.once import LetterState, LetterStatus, Outbox

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

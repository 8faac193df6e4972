"""`semel outbox retry` and `semel outbox drop`: both ask for confirmation before many letters are changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import NamedTuple

import click

from semel.cli.outbox.ls import show
from semel.cli.outbox.place import with_outbox
from semel.cli.output import printable, with_json
from semel.cli.progress import progress
from semel.once import LetterStatus, Outbox


class Change(NamedTuple):
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
    _apply(box, Change("Send again", "Queued", "Queueing", box.retry), keys, poison, dry_run, yes, as_json)


@click.command()
@with_outbox
@click.argument("keys", nargs=-1, metavar="KEY...")
@click.option("--poison", is_flag=True, help="Take all letters that were set aside as poison.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@with_json
def drop(box: Outbox, keys: tuple[str, ...], poison: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove letters that were not delivered. PLACE is a file or a postgresql:// URL."""
    _apply(box, Change("Drop", "Dropped", "Dropping", box.drop), keys, poison, dry_run, yes, as_json)


def _apply(
    box: Outbox, change: Change, keys: tuple[str, ...], poison: bool, dry_run: bool, yes: bool, as_json: bool
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


def _plan(change: Change, found: list[LetterStatus], as_json: bool) -> None:
    if as_json:
        for letter in found:
            click.echo(json.dumps({"key": letter.key, change.past.lower(): False, "dry_run": True}))
        return
    if found:
        show(found)
    click.echo(f"Would {change.verb.lower()} {len(found)} letters.")


def _carry_out(change: Change, found: list[LetterStatus], as_json: bool) -> None:
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

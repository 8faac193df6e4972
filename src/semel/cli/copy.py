"""`semel copy`: move a whole data set into another store.

Looks at both places before it opens either, so that a refusal leaves no folder, schema or migration behind. A crash
leaves the target without rows, and the command can be run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import click

from semel.cli.output import table
from semel.cli.progress import row_progress
from semel.contracts.schema import MIGRATIONS, TABLES
from semel.server.world import SystemWorld
from semel.store import copying
from semel.store.copying import Part, Report, TargetNotEmptyError
from semel.store.migrations import pending
from semel.store.open import look_at, open_store, place_of, shown
from semel.store.protocol import CommitUnknownError, Store, StoreError

DIGITS = 16
"""How much of a digest is shown; all of it is compared."""


@click.command()
@click.option("--from", "source", required=True, metavar="URL", help="Store to read: sqlite:FOLDER or postgresql://...")
@click.option("--to", "target", required=True, metavar="URL", help="Store to write, which must be empty.")
@click.option("--dry-run", is_flag=True, help="Print what would be copied, and change nothing in the target.")
def copy(source: str, target: str, dry_run: bool) -> None:
    """Copy all data of one store into another, which must be empty.

    Every row is kept as it is, so that retries get their first answers from the new store too. It is all or nothing,
    and checked by reading both sides again.

    Stop the server first. Where the source is PostgreSQL, stop all of its nodes: nothing keeps them from writing, and
    what they write after the copy has begun is not in it.
    """
    try:
        _check(source, target)
        with closing(_open(source)) as read:
            counts = copying.count(read, TABLES)
            if dry_run:
                _show_plan(counts, source, target)
                return
            with closing(_open(target)) as written:
                report = _copy(read, written, sum(counts.values()))
    except StoreError as error:
        raise click.ClickException(str(error)) from error
    except CommitUnknownError as error:
        unsure = "It is not known whether the copy was stored: run this again, it is refused if it was."
        raise click.ClickException(f"{error} {unsure}") from error
    _show(report, source, target)


def _check(source: str, target: str) -> None:
    """Refuse what cannot work before anything is opened, because opening makes and migrates."""
    for url in (source, target):
        if url.startswith("memory:"):
            raise click.UsageError("A memory store has nothing to copy, and keeps nothing.")
    if place_of(source) == place_of(target):
        raise click.UsageError(f"Both stores are the same: {shown(source)}")
    version = look_at(source, ()).version
    if version == 0:
        raise StoreError(f"There is no data in {shown(source)}.")
    if pending(MIGRATIONS, version):
        raise StoreError(f"{shown(source)} is of the older schema version {version}: run `semel migrate` on it first.")
    there = look_at(target, TABLES)
    pending(MIGRATIONS, there.version)
    if there.occupied is not None:
        raise TargetNotEmptyError(there.occupied)


def _open(url: str) -> Store:
    return open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)


def _copy(source: Store, target: Store, rows: int) -> Report:
    with row_progress("Copying", rows) as tell:
        copying.copy(source, target, TABLES, tell)
    with row_progress("Checking both sides", 2 * rows) as tell:
        return copying.compare(source, target, TABLES, tell)


def _show_plan(counts: Mapping[Part, int], source: str, target: str) -> None:
    for line in table(("table", "rows"), [(part.name, f"{rows:,}") for part, rows in counts.items()]):
        click.echo(line)
    click.echo(f"Would copy {sum(counts.values()):,} rows from {shown(source)} to {shown(target)}.")


def _show(report: Report, source: str, target: str) -> None:
    head = ("table", "rows", "rows copied", "SHA-256", "SHA-256 of the copy", "")
    lines: list[tuple[str, ...]] = [
        (
            line.part.name,
            f"{line.source.rows:,}",
            f"{line.target.rows:,}",
            line.source.sha256[:DIGITS],
            line.target.sha256[:DIGITS],
            "same" if line.agrees else "DIFFERENT",
        )
        for line in report.lines
    ]
    for text in table(head, lines):
        click.echo(text)
    if report.differing:
        raise click.ClickException(
            f"The copy differs in {', '.join(report.differing)}: do not use it. Was either store in use?"
        )
    rows = sum(line.source.rows for line in report.lines)
    click.echo(f"Copied {rows:,} rows from {shown(source)} to {shown(target)}; both sides are the same.")

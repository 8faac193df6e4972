"""`semel check`: verifies a whole store, offline or beside a running server. It changes nothing."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated

import click

from semel.cli.command import AT_LEAST_1, Json, Opt, command
from semel.cli.output import printable, row_progress
from semel.cli.store_options import StoreOptions
from semel.server.store_check import StoreCheck
from semel.store.open import shown
from semel.store.protocol import StoreError
from semel.store.table_check import StoreFault
from semel.surfaces.registry import NAMES

MOST = 100
CLEAN, FAULTY, NOT_CHECKED = 0, 1, 2


@command()
def check(
    store: StoreOptions,
    surface: Annotated[str | None, Opt("Check only this surface.", type=click.Choice(NAMES))] = None,
    limit: Annotated[int, Opt("Print at most this many faults.", type=AT_LEAST_1, show_default=True)] = MOST,
    as_json: Json = False,
) -> None:
    """Verify a store: its files, every row, and what the rows of each surface must agree on.

    A server may be running: the check reads one instant, and locks and changes nothing. The exit code is 0 for a clean
    store, 1 if there are faults, and 2 if the store cannot be checked.
    """
    url = store.settings().store_url
    began = time.monotonic()
    run = StoreCheck(url, () if surface is None else (surface,))
    count = 0
    try:
        if url.startswith("memory:"):
            raise StoreError("A memory store is empty at every start: there is nothing to check.")
        with row_progress(f"Checking {shown(url)}", None) as tell:
            for fault in run.faults(tell):
                count += 1
                if count <= limit:
                    click.echo(_line(fault, as_json=as_json))
    except StoreError as error:
        click.echo(f"Error: The store cannot be checked. {error}", err=True)
        sys.exit(NOT_CHECKED)
    seconds = time.monotonic() - began
    if count > limit:
        click.echo(f"{count - limit} more faults are not shown; see --limit.", err=True)
    facts = {"store": shown(url), "faults": count, "rows": run.rows, "seconds": round(seconds, 3)}
    verdict = "clean" if not count else f"{count} fault{'s' if count > 1 else ''}"
    text = f"{shown(url)}: {verdict}; {run.rows:,} rows read in {seconds:.1f} s."
    click.echo(json.dumps(facts) if as_json else text)
    sys.exit(FAULTY if count else CLEAN)


def _line(fault: StoreFault, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(fault._asdict())
    place = "/".join(filter(None, (fault.surface, fault.table)))
    return printable(f"{place}{f' [{fault.where}]' if fault.where else ''}: {fault.what}")

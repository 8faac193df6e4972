"""`semel worker`: runs jobs with the functions of a worker in the user's own code, until stopped."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import click

from semel.cli.command import AT_LEAST_1, URL, Opt, Positional, TokenFile, command
from semel.cli.output import log_to_stderr, printable
from semel.client import AccessError, SemelError, Worker
from semel.client.access import find_token


@command()
def worker(
    place: Annotated[str, Positional("MODULE:WORKER")],
    url: Annotated[str | None, Opt("URL of the server; by default that of the code, then SEMEL_URL.", type=URL)] = None,
    token_file: TokenFile = None,
    concurrency: Annotated[
        int | None, Opt("Maximum concurrent jobs; by default that of the code.", type=AT_LEAST_1)
    ] = None,
    queues: Annotated[tuple[str, ...], Opt("Claim jobs of this queue; may be repeated.", "--queue", "NAME")] = (),
    once: Annotated[bool, Opt("Exit when no job is ready.")] = False,
) -> None:
    """Run jobs with the functions of a worker: MODULE:WORKER is its import path, from the current folder.

    SIGTERM or Control-C stops it: it claims no more jobs, waits for running ones, and gives back the rest. A second
    signal stops it at once.
    """
    found = _find(place)
    try:
        found.configure(
            url=url,
            token=None if token_file is None else find_token(os.environ, token_file),
            concurrency=concurrency,
            queues=queues or None,
        )
        log_to_stderr("semel.worker")
        tally = found.run(until_idle=once)
    except SemelError as error:
        advice = " Check the token." if isinstance(error, AccessError) else ""
        raise click.ClickException(printable(f"{error}{advice}")) from error
    click.echo("Runs: " + ", ".join(f"{count} {name}" for name, count in tally.items()))


def _find(place: str) -> Worker:
    module, _, name = place.partition(":")
    if not module or not name:
        raise click.UsageError("Name the worker as MODULE:WORKER, for example tasks:worker.")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _broken(module, error) from error
        raise click.ClickException(f"There is no module {module} in {Path.cwd()}, and none is installed.") from None
    except Exception as error:
        raise _broken(module, error) from error
    made = getattr(found, name, None)
    if not isinstance(made, Worker):
        what = f"no {name}" if made is None else f"a {name} that is not a Worker"
        raise click.ClickException(f"The module {module} has {what}.")
    return made


def _broken(module: str, error: Exception) -> click.ClickException:
    return click.ClickException(printable(f"The module {module} cannot be imported: {type(error).__name__}: {error}"))

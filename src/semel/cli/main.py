"""The root command. Its subcommands are modules that are imported on demand.

So `semel --version`, and every command that only talks to a server, starts without the server's libraries.
"""

from __future__ import annotations

import io
import os
import sys

import click

from semel import __version__
from semel.cli.help import MAX_WIDTH
from semel.cli.lazy import LazyGroup

_HOMES = {
    "Run a server": {
        "serve": "semel.cli.serve:serve",
        "doctor": "semel.cli.doctor:doctor",
        "config": "semel.cli.config:config",
    },
    "Use the surfaces of a server": {
        "streams": "semel.cli.streams:streams",
        "events": "semel.cli.events:events",
        "jobs": "semel.cli.jobs:jobs",
        "worker": "semel.cli.worker:worker",
        "ledger": "semel.cli.ledger:ledger",
        "deltas": "semel.cli.deltas:deltas",
        "find": "semel.cli.find:find",
    },
    "Idempotency in your own code": {
        "once": "semel.cli.once:once",
        "outbox": "semel.cli.outbox:outbox",
        "proxy": "semel.cli.proxy:proxy",
    },
    "Operate": {
        "migrate": "semel.cli.store:migrate",
        "backup": "semel.cli.backup:backup",
        "restore": "semel.cli.backup:restore",
        "check": "semel.cli.check:check",
        "epoch": "semel.cli.store:epoch",
        "token": "semel.cli.token:token",
        "audit": "semel.cli.audit:audit",
        "diagnose": "semel.cli.diagnose:diagnose",
    },
}
"""The module and the name of each subcommand, under the headings of `semel --help`."""


@click.group(
    cls=LazyGroup,
    homes={name: home for homes in _HOMES.values() for name, home in homes.items()},
    headings={heading: tuple(homes) for heading, homes in _HOMES.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MAX_WIDTH},
)
@click.version_option(__version__, prog_name="semel")
@click.pass_context
def main(context: click.Context) -> None:
    """Every write happens once, however often it is retried."""
    if os.environ.get("NO_COLOR"):
        context.color = False
    # A stream's name may have characters that the terminal's encoding lacks: print their escapes instead of failing.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")

"""The `semel` command."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command. Without its packages, print in one line which extra installs them."""
    try:
        from semel.cli.main import main as command  # noqa: PLC0415 - the bare library has no packages for it
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "semel":
            raise
        sys.exit("The semel command needs the server's packages: run pip install 'semel[server]'.")
    command()

"""The `semel` command."""

from semel.cli.main import main

__all__ = ["main"]

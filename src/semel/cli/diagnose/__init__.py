"""`semel diagnose`: one file that somebody else can find a fault with, without secrets."""

from semel.cli.diagnose.command import diagnose

__all__ = ["diagnose"]

"""`semel diagnose`: a support bundle in one file, without secrets."""

from semel.cli.diagnose.command import diagnose

__all__ = ["diagnose"]

"""`python -m semel`."""

from semel.cli import run

run()

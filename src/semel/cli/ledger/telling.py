"""Text output of the ledger: numbers, hashes and ids, without trust in their source."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping

import click

from semel.cli.ledger.asking import Facts
from semel.cli.output import printable, table

SHOWN_CHARACTERS = 60


def inner(facts: object, *names: str) -> object:
    """The value at a path of names; None when one of them is missing."""
    for name in names:
        facts = facts.get(name) if isinstance(facts, Mapping) else None
    return facts


def hex_of(value: object) -> str:
    """Bytes that came as base64, in hexadecimal; a question mark for anything else."""
    if not isinstance(value, str):
        return "?"
    try:
        return b64decode(value, validate=True).hex()
    except (Base64Error, ValueError):
        return "?"


def octets_of(value: object) -> bytes | None:
    """Bytes that came as base64; None for anything else."""
    try:
        return b64decode(value, validate=True) if isinstance(value, str) else None
    except (Base64Error, ValueError):
        return None


def content_words(value: object) -> str:
    """A value in one short line: as text, or its size where it is none."""
    content = octets_of(value)
    if content is None:
        return "?"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"({len(content)} bytes)"
    return shortened(printable(text)) if text else "(empty)"


def shortened(text: str) -> str:
    """A text that fits into a line."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def bare(status: object, prefix: str) -> str:
    """A name of a list of names, as people say it: `read-only` for `VAULT_STATUS_READ_ONLY`."""
    return str(status).removeprefix(prefix).lower().replace("_", "-")


def show_table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]], none: str) -> None:
    """A table, or a sentence on standard error when there are no rows."""
    cells = [tuple(printable(str(cell)) for cell in row) for row in rows]
    if not cells:
        click.echo(none, err=True)
        return
    for line in table(head, cells):
        click.echo(line)


def committed_words(success: Facts) -> str:
    """A transaction that is in the chain."""
    height, sequence = success.get("blockHeight"), success.get("assignedSequence")
    return printable(f"{hex_of(inner(success, 'txId', 'id'))} at height {height}, sequence {sequence}")

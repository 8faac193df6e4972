"""Arguments of the ledger commands that name places, and values of the ledger as text.

Values of the server are not trusted: characters that do not print are escaped.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from typing import Annotated

import click

from semel.cli.command import ParsedType, Positional
from semel.cli.output import printable, shortened
from semel.client.ledger.values import PlaceName

_PLACE = re.compile(r"(0|[1-9][0-9]{0,19})(?:/(0|[1-9][0-9]{0,19}))?")


def _place(kind: str) -> Callable[[str], PlaceName]:
    """Reads the name of an organization, of a vault, or of either."""

    def parse(text: str) -> PlaceName:
        found = _PLACE.fullmatch(text)
        if found is None:
            raise ValueError("write the place as ORG or ORG/VAULT, with their numbers.")
        if kind == "org" and found[2] is not None:
            raise ValueError("give only the number of the organization.")
        if kind == "vault" and found[2] is None:
            raise ValueError("write the vault as ORG/VAULT, with their numbers.")
        return PlaceName(found[1], found[2])

    return parse


PLACE = ParsedType("place", _place("place"))
AnyPlace = Annotated[PlaceName, Positional(type=PLACE)]
Org = Annotated[PlaceName, Positional(type=ParsedType("org", _place("org")))]
Vault = Annotated[PlaceName, Positional(type=ParsedType("vault", _place("vault")))]
HEIGHT = click.IntRange(min=1)


def content_words(content: bytes) -> str:
    """A value in one short line: as text, or its size if it is binary."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"({len(content)} bytes)"
    return shortened(printable(text)) if text else "(empty)"


def base64_words(value: object) -> str:
    """A value in base64, in one short line."""
    try:
        return content_words(b64decode(str(value), validate=True))
    except ValueError:
        return "?"

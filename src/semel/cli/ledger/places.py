"""Arguments of the ledger commands that name places, and values of the ledger as text.

Values of the server are not trusted: characters that do not print are escaped.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Annotated, Any

import click

from semel.cli.command import Positional
from semel.cli.output import printable
from semel.client.ledger.values import PlaceName

_PLACE = re.compile(r"(0|[1-9][0-9]{0,19})(?:/(0|[1-9][0-9]{0,19}))?")
SHOWN_CHARACTERS = 60


class PlaceType(click.ParamType[PlaceName]):
    """An argument that names a place: an organization, a vault, or either."""

    def __init__(self, name: str = "place") -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> PlaceName:
        """The place, or a usage error."""
        if isinstance(value, PlaceName):
            return value
        found = _PLACE.fullmatch(str(value))
        if found is None:
            self.fail("write the place as ORG or ORG/VAULT, with their numbers.", param, ctx)
        if self.name == "org" and found[2] is not None:
            self.fail("give only the number of the organization.", param, ctx)
        if self.name == "vault" and found[2] is None:
            self.fail("write the vault as ORG/VAULT, with their numbers.", param, ctx)
        return PlaceName(found[1], found[2])


AnyPlace = Annotated[PlaceName, Positional(type=PlaceType())]
Org = Annotated[PlaceName, Positional(type=PlaceType("org"))]
Vault = Annotated[PlaceName, Positional(type=PlaceType("vault"))]
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


def shortened(text: str) -> str:
    """A text cut to one line."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."

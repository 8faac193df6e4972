"""Block hashes that the user trusts, written as `[ORG[/VAULT] ]HEIGHT:HASH`, one or many."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from semel.client.proofs import Trusted

_TRUST = re.compile(
    r"(?:(?P<org>0|[1-9][0-9]{0,19})(?:/(?P<vault>0|[1-9][0-9]{0,19}))?\s+)?"
    r"(?P<height>[1-9][0-9]{0,19}):(?P<hash>[0-9a-fA-F]{64})(?:\s.*)?"
)


def parse_trust(text: str) -> Trusted | None:
    """The block in a line; text after the hash is ignored. None when there is none."""
    found = _TRUST.fullmatch(text.strip())
    if found is None:
        return None
    org = found["org"]
    scope = (None, None) if org is None else (int(org), int(found["vault"] or 0))
    return Trusted(int(found["height"]), bytes.fromhex(found["hash"]), *scope)


class TrustType(click.ParamType[Trusted]):
    """An option that takes one block."""

    name = "trust"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Trusted:
        """The block, or a usage error."""
        found = value if isinstance(value, Trusted) else parse_trust(str(value))
        if found is None:
            self.fail("a trusted block is HEIGHT:HASH, from height 1 on, with 64 hexadecimal digits.", param, ctx)
        return found


def read_trust_file(path: Path) -> list[Trusted]:
    """The blocks of a file, one on each line; empty lines and those that begin with # are passed over."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise click.ClickException(f"{path} cannot be read: {reason}.") from None
    found: list[Trusted] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        one = parse_trust(line)
        if one is None:
            raise click.ClickException(f"Line {number} of {path} is not [ORG[/VAULT] ]HEIGHT:HASH.")
        found.append(one)
    if not found:
        raise click.ClickException(f"{path} names no block.")
    return found

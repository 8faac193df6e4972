"""Files of trusted blocks, one `[ORG[/VAULT] ]HEIGHT:HASH` on each line, and the ones that a proof leads to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from semel.client.errors import LocalFileError
from semel.client.proofs import ProofError, Trusted, anchor_of

_TRUST = re.compile(
    r"(?:(?P<org>0|[1-9][0-9]{0,19})(?:/(?P<vault>0|[1-9][0-9]{0,19}))?\s+)?"
    r"(?P<height>[1-9][0-9]{0,19}):(?P<hash>[0-9a-fA-F]{64})(?:\s.*)?"
)


def parse_trust(text: str) -> Trusted | None:
    """The block of a line, or None; text after the hash is ignored."""
    found = _TRUST.fullmatch(text.strip())
    if found is None:
        return None
    org = found["org"]
    place = (None, None) if org is None else (int(org), int(found["vault"] or 0))
    return Trusted(int(found["height"]), bytes.fromhex(found["hash"]), *place)


def read_trust_file(path: Path) -> list[Trusted]:
    """The blocks of a file; empty lines and those that start with # are ignored. Raises `LocalFileError`."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise LocalFileError(f"{path} cannot be read: {reason}.") from None
    found: list[Trusted] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        one = parse_trust(line)
        if one is None:
            raise LocalFileError(f"Line {number} of {path} is not [ORG[/VAULT] ]HEIGHT:HASH.")
        found.append(one)
    if not found:
        raise LocalFileError(f"{path} names no block.")
    return found


def blocks_for(known: list[Trusted], document: Mapping[str, Any]) -> list[Trusted]:
    """The trusted blocks that a proof claims to lead to. Raises `ProofError` if there is none."""
    anchor = anchor_of(document)
    own = (None, None), (anchor.organization, anchor.vault)
    found = [one for one in known if one.height == anchor.height and (one.organization, one.vault) in own]
    if not found:
        place = f"{anchor.organization}/{anchor.vault}" if anchor.vault else str(anchor.organization)
        raise ProofError(f"The proof leads to block {anchor.height} of {place}, which is not a trusted block.")
    return found

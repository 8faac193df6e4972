"""`semel ledger verify`: checks a proof against a trusted block hash, without a server.

Trusted hashes are written as `[ORG[/VAULT] ]HEIGHT:HASH`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click

from semel.cli.command import Arg, Opt, ParsedType, command
from semel.cli.ledger.places import PLACE
from semel.cli.ledger.proof import TRIPLE, TRIPLE_NAMES
from semel.cli.output import Said, printable
from semel.cli.source import read_file
from semel.client.ledger.trust_file import blocks_for, parse_trust, read_trust_file
from semel.client.ledger.values import PlaceName
from semel.client.proofs import ProofError, ProofFinding, Trusted, anchor_of, finding_of, load, verify_answer

NO_TRUST = (
    "Name a block that you trust: --trust HEIGHT:HASH or --trust-file; or give --untrusted, which proves nothing."
)


def _trust(text: str) -> Trusted:
    found = parse_trust(text)
    if found is None:
        raise ValueError("a trusted block must be HEIGHT:HASH, with a height of at least 1 and 64 hexadecimal digits.")
    return found


@command()
def verify(
    file: Arg,
    trust: Annotated[
        Trusted | None, Opt("Height and hash of a trusted block.", "", "HEIGHT:HASH", ParsedType("trust", _trust))
    ] = None,
    trust_file: Annotated[Path | None, Opt("File with trusted blocks, one on each line.")] = None,
    untrusted: Annotated[
        bool, Opt("Check only that the file is consistent, and print the block hash that must be trusted.")
    ] = False,
    place: Annotated[
        PlaceName | None, Opt("Organization or vault that the proof must be for.", "", "ORG[/VAULT]", PLACE)
    ] = None,
    key: Annotated[str | None, Opt("Key that the proof of a value, or of its absence, must be for.")] = None,
    relationship: Annotated[Any, Opt("Relationship that the proof must be for.", "", TRIPLE_NAMES, TRIPLE)] = None,
    request: Annotated[
        str | None, Opt("File with the request body of the write that must be proved.", "", "FILE")
    ] = None,
) -> Said:
    """Check a proof offline: of a transaction, a value or a relationship, its absence, or a block. FILE may be -.

    Exit code 0 if it is valid, else 1 with the reason.
    """
    if (trust is not None) + (trust_file is not None) + untrusted != 1:
        raise click.UsageError(NO_TRUST)
    if key is not None and relationship is not None:
        raise click.UsageError("Give --key or --relationship, not both.")
    try:
        sent = None if request is None else read_file(request)
        document = load(read_file(file))
        if trust_file is not None:
            anchors = blocks_for(read_trust_file(trust_file), document)
        else:
            anchors = [anchor_of(document) if trust is None else trust]
        check = partial(verify_answer, document, key=key, relationship=relationship, request=sent)
        # Several lines may name the same block: if they contradict each other, one check fails.
        proved = [check(_bound(anchor, place)) for anchor in anchors][-1]
    except ProofError as error:
        raise click.ClickException(printable(f"Not proved: {error}")) from None
    return _said(finding_of(proved), anchors[-1], is_trusted=not untrusted)


def _bound(anchor: Trusted, place: PlaceName | None) -> Trusted:
    """The block, which must be one of the place, if a place is given."""
    if place is None:
        return anchor
    bound = Trusted(anchor.height, anchor.hash, *place.numbers)
    if anchor.organization is not None and anchor != bound:
        raise ProofError(f"The trusted block is not of {place}.")
    return bound


def _said(proved: ProofFinding, anchor: Trusted, *, is_trusted: bool) -> Said:
    header, height = proved.header, proved.header.height
    scope = f"{header.organization}/{header.vault}" if header.vault else str(header.organization)
    name = f"{anchor.height}:{anchor.hash.hex()}"
    facts = {"proved": is_trusted, **proved.facts, "place": scope, "height": str(height), "trust": name}
    if height == 0:
        words = proved.words.removesuffix(" after it")
        return Said(facts, f"It fits together, and stands if no block of {scope} is trusted: {words}.")
    if not is_trusted:
        return Said(facts, f"It fits together, and stands if {name} is real. Block {height}: {proved.words}.")
    # Below the trusted block only one block is possible; above it, any that was built on it.
    way = f"is {'built on' if height > anchor.height else 'covered by'} the trusted block {anchor.height}"
    way = "is trusted" if anchor.height == height else way
    return Said(facts, f"Proved. Block {height} of {scope} {way}: {proved.words}.")

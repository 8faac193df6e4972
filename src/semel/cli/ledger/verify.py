"""`semel ledger verify`: checks a proof against a trusted block hash, without a server.

Trusted hashes are written as `[ORG[/VAULT] ]HEIGHT:HASH`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import click

from semel.cli.command import Arg, Json, Opt, command
from semel.cli.ledger.places import PlaceType, shortened
from semel.cli.ledger.proof import TRIPLE, TRIPLE_NAMES, Document
from semel.cli.output import printable, say
from semel.cli.source import STDIN, read_whole
from semel.client.ledger.trust_file import blocks_for, parse_trust, read_trust_file
from semel.client.ledger.values import PlaceName
from semel.client.proofs import (
    Header,
    ProofError,
    ProvedRead,
    ProvedRelationship,
    ProvedWrite,
    Trusted,
    anchor_of,
    load,
    relationship_in,
    verify_read,
    verify_relationship,
    verify_whole_block,
    verify_write,
)


class TrustType(click.ParamType[Trusted]):
    """An option that takes one block."""

    name = "trust"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Trusted:
        """The block, or a usage error."""
        found = value if isinstance(value, Trusted) else parse_trust(str(value))
        if found is None:
            self.fail(
                "a trusted block must be HEIGHT:HASH, with a height of at least 1 and 64 hexadecimal digits.",
                param,
                ctx,
            )
        return found


NO_TRUST = (
    "Name a block that you trust: --trust HEIGHT:HASH or --trust-file; or give --untrusted, which proves nothing."
)

Triple = tuple[str, str, str]


class _ProofQuestion(NamedTuple):
    """The proof, and the subject that it must have, if given."""

    document: Document
    place: PlaceName | None
    key: str | None
    relationship: Triple | None
    request: bytes | None


class _ProofFinding(NamedTuple):
    """What a proof shows, as text and as JSON."""

    header: Header
    words: str
    facts: Document


@command()
def verify(
    file: Arg,
    trust: Annotated[
        Trusted | None, Opt("Height and hash of a trusted block.", metavar="HEIGHT:HASH", type=TrustType())
    ] = None,
    trust_file: Annotated[Path | None, Opt("File with trusted blocks, one on each line.")] = None,
    untrusted: Annotated[
        bool, Opt("Check only that the file is consistent, and print the block hash that must be trusted.")
    ] = False,
    place: Annotated[
        PlaceName | None,
        Opt("Organization or vault that the proof must be for.", metavar="ORG[/VAULT]", type=PlaceType()),
    ] = None,
    key: Annotated[str | None, Opt("Key that the proof of a value, or of its absence, must be for.")] = None,
    relationship: Annotated[
        Any, Opt("Relationship that the proof must be for.", metavar=TRIPLE_NAMES, type=TRIPLE)
    ] = None,
    request: Annotated[
        str | None, Opt("File with the request body of the write that must be proved.", metavar="FILE")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a proof offline: of a transaction, a value or a relationship, its absence, or a block. FILE may be -.

    Exit code 0 if it is valid, else 1 with the reason.
    """
    if (trust is not None) + (trust_file is not None) + untrusted != 1:
        raise click.UsageError(NO_TRUST)
    if key is not None and relationship is not None:
        raise click.UsageError("Give --key or --relationship, not both.")
    try:
        sent = None if request is None else _content(request)
        asked = _ProofQuestion(load(_content(file)), place, key, relationship, sent)
        if trust_file is not None:
            anchors = blocks_for(read_trust_file(trust_file), asked.document)
        else:
            anchors = [anchor_of(asked.document) if trust is None else trust]
        # Several lines may name the same block: if they contradict each other, one check fails.
        proved = [_verified(asked, anchor) for anchor in anchors][-1]
    except ProofError as error:
        raise click.ClickException(printable(f"Not proved: {error}")) from None
    _tell(proved, anchors[-1], as_json, is_trusted=not untrusted)


def _content(name: str) -> bytes:
    try:
        if name == STDIN:
            return read_whole(sys.stdin.buffer)
        with Path(name).open("rb") as file:
            return read_whole(file)
    except OSError as error:
        raise click.ClickException(f"{name} cannot be read: {error.strerror}.") from None


def _verified(asked: _ProofQuestion, anchor: Trusted) -> _ProofFinding:
    if asked.place is not None:
        bound = Trusted(anchor.height, anchor.hash, *asked.place.numbers)
        if anchor.organization is not None and anchor != bound:
            raise ProofError(f"The trusted block is not of {asked.place}.")
        anchor = bound
    kinds: dict[str, Callable[[_ProofQuestion, Trusted], _ProofFinding]] = {"stateProof": _read, "block": _block}
    for member, check in kinds.items():
        if member in asked.document:
            if asked.request is not None:
                raise ProofError("The file does not prove a write, so it cannot prove the request.")
            return check(asked, anchor)
    _refuse_state(asked)
    return _write_words(verify_write(asked.document, asked.request, anchor))


def _refuse_state(asked: _ProofQuestion) -> None:
    if asked.key is not None:
        raise ProofError("The file is not a proof of a key.")
    if asked.relationship is not None:
        raise ProofError("The file is not a proof of a relationship.")


def _read(asked: _ProofQuestion, anchor: Trusted) -> _ProofFinding:
    if asked.relationship is not None or (asked.key is None and relationship_in(asked.document) is not None):
        return _relationship_words(verify_relationship(asked.document, asked.relationship, anchor))
    return _read_words(verify_read(asked.document, asked.key, anchor))


def _relationship_words(proved: ProvedRelationship) -> _ProofFinding:
    parts = proved.resource, proved.relation, proved.subject
    facts: Document = {"kind": "relationship", "present": proved.entry is not None}
    facts |= dict(zip(("resource", "relation", "subject"), parts, strict=True))
    name = " ".join(map(shortened, parts))
    if proved.entry is None:
        return _ProofFinding(proved.header, f"there is no relationship {name} after it", facts)
    facts["version"] = str(proved.entry.version)
    return _ProofFinding(
        proved.header, f"the relationship {name} is there, created by block {proved.entry.version}", facts
    )


def _block(asked: _ProofQuestion, anchor: Trusted) -> _ProofFinding:
    _refuse_state(asked)
    written = verify_whole_block(asked.document, anchor)
    proved = [_write_words(one) for one in written]
    facts = {"kind": "block", "transactions": [one.facts["transaction"] for one in proved]}
    count = "one transaction" if len(written) == 1 else f"{len(written)} transactions"
    return _ProofFinding(written[0].header, f"these are all of it: {count}", facts)


def _write_words(proved: ProvedWrite) -> _ProofFinding:
    one = proved.transaction
    facts = {
        "kind": "transaction",
        "transaction": one.id.hex(),
        "client": one.client_id.decode(),
        "sequence": str(one.sequence),
        "actor": one.actor.decode(),
        "operations": len(one.operations),
    }
    words = (
        f"transaction {one.id.hex()} of {facts['client']} (sequence {one.sequence}, actor {facts['actor']}) is in it"
    )
    return _ProofFinding(proved.header, words, facts)


def _read_words(proved: ProvedRead) -> _ProofFinding:
    key = proved.key.decode("utf-8", "backslashreplace")
    facts: Document = {"kind": "value", "key": key, "present": proved.entry is not None}
    if proved.entry is None:
        return _ProofFinding(proved.header, f"there is nothing under {shortened(key)} after it", facts)
    entry = proved.entry
    facts |= {"bytes": len(entry.value), "version": str(entry.version), "expires_at": str(entry.expires_at)}
    facts["withheld"] = proved.is_withheld
    ends = ", which had expired," if proved.is_expired else ", which the answer left out," if proved.is_withheld else ""
    words = f"{shortened(key)} has a value of {len(entry.value)} bytes{ends} set by block {entry.version}"
    return _ProofFinding(proved.header, words, facts)


def _tell(proved: _ProofFinding, anchor: Trusted, as_json: bool, *, is_trusted: bool) -> None:
    height = proved.header.height
    scope = f"{proved.header.organization}/{proved.header.vault}" if proved.header.vault else proved.header.organization
    name = f"{anchor.height}:{anchor.hash.hex()}"
    facts = {"proved": is_trusted, **proved.facts, "place": str(scope), "height": str(height), "trust": name}
    if not is_trusted:
        say(
            as_json,
            facts,
            printable(f"It fits together, and stands if {name} is real. Block {height}: {proved.words}."),
        )
        return
    way = "is trusted" if anchor.height == height else f"is {_way(anchor, height)} the trusted block {anchor.height}"
    say(as_json, facts, printable(f"Proved. Block {height} of {scope} {way}: {proved.words}."))


def _way(anchor: Trusted, height: int) -> str:
    """The direction: below the trusted block only one block is possible; above it, any that was built on it."""
    return "built on" if height > anchor.height else "covered by"

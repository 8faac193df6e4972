"""`semel ledger verify`: checks a proof against a trusted block hash, without a server.

Trusted hashes are written as `[ORG[/VAULT] ]HEIGHT:HASH`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from semel.cli.ledger.requests import CliLedgerScope, Facts, ScopeType, shortened
from semel.cli.output import printable, say, with_json
from semel.cli.source import STDIN, read_whole
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
    scope = (None, None) if org is None else (int(org), int(found["vault"] or 0))
    return Trusted(int(found["height"]), bytes.fromhex(found["hash"]), *scope)


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


def read_trust_file(path: Path) -> list[Trusted]:
    """The blocks of a file, one per line; empty lines and those that start with # are ignored."""
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


NO_TRUST = (
    "Name a block that you trust: --trust HEIGHT:HASH or --trust-file; or give --untrusted, which proves nothing."
)

Triple = tuple[str, str, str]


class _ProofQuestion(NamedTuple):
    """The proof, and the subject that it must have, if given."""

    document: Facts
    place: CliLedgerScope | None
    key: str | None
    relationship: Triple | None
    request: bytes | None


class _ProofFinding(NamedTuple):
    """What a proof shows, as text and as JSON."""

    header: Header
    words: str
    facts: Facts


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--trust", type=TrustType(), metavar="HEIGHT:HASH", help="Height and hash of a trusted block.")
@click.option("--trust-file", type=click.Path(path_type=Path), help="File with trusted blocks, one on each line.")
@click.option(
    "--untrusted",
    is_flag=True,
    help="Check only that the file is consistent, and print the block hash that must be trusted.",
)
@click.option(
    "--place", type=ScopeType(), metavar="ORG[/VAULT]", help="Organization or vault that the proof must be for."
)
@click.option("--key", help="Key that the proof of a value, or of its absence, must be for.")
@click.option(
    "--relationship",
    type=(str, str, str),
    metavar="RESOURCE RELATION SUBJECT",
    help="Relationship that the proof must be for.",
)
@click.option("--request", metavar="FILE", help="File with the request body of the write that must be proved.")
@with_json
def verify(
    file: str,
    trust: Trusted | None,
    trust_file: Path | None,
    untrusted: bool,
    place: CliLedgerScope | None,
    key: str | None,
    relationship: Triple | None,
    request: str | None,
    as_json: bool,
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
            anchors = _fitting(read_trust_file(trust_file), asked.document)
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


def _fitting(known: list[Trusted], document: Facts) -> list[Trusted]:
    """The trusted blocks that the proof claims to lead to."""
    anchor = anchor_of(document)
    found = [
        one
        for one in known
        if one.height == anchor.height and one[2:] in ((None, None), (anchor.organization, anchor.vault))
    ]
    if not found:
        scope = f"{anchor.organization}/{anchor.vault}" if anchor.vault else str(anchor.organization)
        raise ProofError(f"The proof leads to block {anchor.height} of {scope}, which is not a trusted block.")
    return found


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
    facts: Facts = {"kind": "relationship", "present": proved.entry is not None}
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
    facts: Facts = {"kind": "value", "key": key, "present": proved.entry is not None}
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

"""`semel ledger proof`: writes the proof of a transaction or a relationship to one file that is verified offline.

Headers between two blocks are fetched page by page.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import click

from semel.cli.connection import CliConnection, CliRefusedError
from semel.cli.ledger.requests import CliLedger, CliLedgerScope, Facts, ScopeType, inner
from semel.cli.output import printable, progress, say, with_json
from semel.cli.requests import with_connection, with_retries
from semel.cli.source import STDIN
from semel.client.proofs import ProofError, ProvedRelationship, Trusted, anchor_of, verify_relationship, verify_write

T = TypeVar("T")


class ProofFileType(click.ParamType[Path]):
    """An option for an output file; an unusable path is refused before any request."""

    name = "file"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path, or a usage error."""
        path = Path(str(value))
        if str(value) != STDIN and (path.is_dir() or not os.access(path.parent, os.W_OK)):
            self.fail(f"{path} cannot be written.", param, ctx)
        return path


def checked(document: Facts, place: CliLedgerScope, check: Callable[[Trusted], T]) -> tuple[Trusted, T]:
    """Verify a proof. Returns the block that must be trusted, and what the proof shows."""
    try:
        anchor = anchor_of(document)
        return anchor, check(Trusted(anchor.height, anchor.hash, *place.numbers))
    except ProofError as error:
        raise click.ClickException(printable(f"The server's proof is not valid: {error}")) from None


def save(path: Path, facts: Facts) -> None:
    """Write the document as JSON, completely or not at all; `-` is standard output."""
    content = json.dumps(facts, indent=1).encode() + b"\n"
    if str(path) == STDIN:
        sys.stdout.buffer.write(content)
        return
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise click.ClickException(f"{path} cannot be written: {error.strerror}.") from None


MOST_HEADERS = 10_000
MOST_BLOCKS = 1_000


def add_chain(ledger: CliLedger, place: CliLedgerScope, document: Facts, height: int) -> None:
    """Add to a proof the headers that lead to a trusted block, above or below its own."""
    own = document.get("blockHeight")
    if not isinstance(own, str) or not own.isdecimal():
        raise ledger.stranger()
    if height != int(own):
        lower, upper = sorted((height, int(own)))
        document["chainProof"] = {"headers": _headers(ledger, place, lower, upper)}


def _headers(ledger: CliLedger, place: CliLedgerScope, lower: int, upper: int) -> list[Facts]:
    """The headers after one height up to another, in order."""
    headers: list[Facts] = []
    with progress(upper - lower, "Fetching headers") as advance:
        while lower < upper:
            found = _piece(ledger, place, lower, min(upper, lower + MOST_HEADERS))
            headers += found
            advance(len(found))
            lower += len(found)
    return headers


def _piece(ledger: CliLedger, place: CliLedgerScope, lower: int, upper: int) -> list[Facts]:
    try:
        proof = ledger.get(place.named("blocks", str(upper), "proof"), {"trustedHeight": lower})
    except CliRefusedError as error:
        # The upper block's body was pruned. So were those below it, and whole blocks are headers only.
        if error.status != 409:
            raise
        return _from_blocks(ledger, place, lower + 1, min(upper, lower + MOST_BLOCKS))
    found = inner(proof, "chainProof", "headers")
    if not isinstance(found, list) or len(found) != upper - lower:
        raise ledger.stranger()
    return found


def _from_blocks(ledger: CliLedger, place: CliLedgerScope, start: int, stop: int) -> list[Facts]:
    blocks = ledger.get(f"{place.path}/blocks", {"from": start, "to": stop}).get("blocks")
    if not isinstance(blocks, list) or not 0 < len(blocks) <= stop - start + 1:
        raise ledger.stranger()
    found = [inner(block, "header") for block in blocks]
    if not all(isinstance(header, dict) for header in found):
        raise ledger.stranger()
    return [header for header in found if isinstance(header, dict)]


_TX_ID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[A-Za-z0-9+/_-]{22}(?:==)?")

Triple = tuple[str, str, str]


@click.command()
@click.argument("place", type=ScopeType())
@click.argument("tx_id", metavar="TX_ID", required=False)
@click.option(
    "--relationship",
    type=(str, str, str),
    metavar="RESOURCE RELATION SUBJECT",
    help="Prove that this relationship exists, or that it does not, instead of a transaction.",
)
@click.option(
    "--at-height", type=click.IntRange(min=1), metavar="N", help="With --relationship: its state after block N."
)
@click.option(
    "-o",
    "--output",
    type=ProofFileType(),
    required=True,
    metavar="FILE",
    help="File to write the proof to; - is stdout.",
)
@click.option(
    "--trusted-height",
    type=click.IntRange(min=1),
    metavar="N",
    help="Add the headers that lead to block N; without it a verifier must trust the hash of the block itself.",
)
@with_retries
@with_json
@with_connection
def proof(
    connection: CliConnection,
    place: CliLedgerScope,
    tx_id: str | None,
    relationship: Triple | None,
    at_height: int | None,
    output: Path,
    trusted_height: int | None,
    retries: int,
    as_json: bool,
) -> None:
    """Write a transaction, its proof and the headers up to a trusted block to one file.

    TX_ID is hexadecimal, a UUID or base64. With --relationship the file proves that a relationship exists after a
    block, or that it does not. The proof is verified before it is written.
    """
    if (tx_id is None) == (relationship is None):
        raise click.UsageError("Give a TX_ID, or --relationship RESOURCE RELATION SUBJECT.")
    if tx_id is not None and not _TX_ID.fullmatch(tx_id):
        raise click.UsageError("TX_ID must be 16 bytes in hexadecimal, as a UUID or in base64.")
    if at_height is not None and relationship is None:
        raise click.UsageError("--at-height needs --relationship.")
    ledger = CliLedger(connection, retries)
    document = _document(ledger, place, tx_id, relationship, at_height)
    if trusted_height is not None:
        add_chain(ledger, place, document, trusted_height)
    check: Callable[[Trusted], object] = partial(verify_write, document, None)
    if relationship is not None:
        check = partial(verify_relationship, document, relationship)
    anchor, shown = checked(document, place, check)
    save(output, document)
    if str(output) != STDIN:
        _tell(document, place, anchor, output, shown, as_json)


def _document(
    ledger: CliLedger, place: CliLedgerScope, tx_id: str | None, relationship: Triple | None, at_height: int | None
) -> Facts:
    if relationship is None:
        assert tx_id is not None
        return ledger.get(place.named("transactions", tx_id.replace("+", "-").replace("/", "_")))
    resource, relation, subject = relationship
    wanted = {"resource": resource, "relation": relation, "subject": subject, "proof": "true", "atHeight": at_height}
    return ledger.get(f"{place.path}/relationships", wanted)


def _tell(document: Facts, place: CliLedgerScope, anchor: Trusted, output: Path, shown: object, as_json: bool) -> None:
    name = f"{anchor.height}:{anchor.hash.hex()}"
    facts = {"file": str(output), "blockHeight": document.get("blockHeight"), "trust": name}
    about = f"{output}: valid if block {name} of {place} is trusted"
    if isinstance(shown, ProvedRelationship):
        is_there = shown.entry is not None
        facts["present"] = is_there
        about += f"; the relationship {'is' if is_there else 'is not'} there after block {shown.header.height}"
    say(as_json, facts, printable(about))

"""`semel ledger proof`: writes the proof of a transaction or a relationship to one file that is verified offline."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import click

from semel.cli.command import Opt, ParsedType, Positional, Retrying, command
from semel.cli.ledger.places import HEIGHT, AnyPlace
from semel.cli.output import Said, printable, progress
from semel.cli.source import STDIN
from semel.client.ledger.place import Place
from semel.client.ledger.values import PlaceName
from semel.client.proofs import ProofError, ProvedRelationship, Trusted, anchor_of, verify_relationship, verify_write

T = TypeVar("T")
Document = dict[str, Any]
TRIPLE = (str, str, str)
TRIPLE_NAMES = "RESOURCE RELATION SUBJECT"
TRUSTED_HELP = "Add the headers that lead to block N; without it a verifier must trust the hash of the block itself."


def _writable(text: str) -> Path:
    """A path; an unusable one is refused before any request."""
    path = Path(text)
    if text != STDIN and (path.is_dir() or not os.access(path.parent, os.W_OK)):
        raise ValueError(f"{path} cannot be written.")
    return path


WRITABLE = ParsedType("file", _writable)
ProofFile = Annotated[Path | None, Opt("Write the answer with its proof to this file.", "", "FILE", WRITABLE)]


def checked(document: Document, place: PlaceName, check: Callable[[Trusted], T]) -> tuple[Trusted, T]:
    """Verify a proof. Returns the block that must be trusted, and what the proof shows."""
    try:
        anchor = anchor_of(document)
        return anchor, check(Trusted(anchor.height, anchor.hash, *place.numbers))
    except ProofError as error:
        raise click.ClickException(printable(f"The server's proof is not valid: {error}")) from None


def save(path: Path, document: Document) -> None:
    """Write the document as JSON, completely or not at all; `-` is standard output."""
    content = json.dumps(document, indent=1).encode() + b"\n"
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


def add_chain(place: Place, document: Document, height: int | None) -> None:
    """Add to a proof the headers that lead to a trusted block, above or below its own."""
    if height is None:
        return
    anchor, _ = checked(document, place.name, lambda trusted: None)
    lower, upper = sorted((height, anchor.height))
    if lower != upper:
        with progress(upper - lower, "Fetching headers") as advance:
            document["chainProof"] = {"headers": place.headers(lower, upper, advance)}


_TX_ID = re.compile(r"[0-9a-fA-F]{32}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[A-Za-z0-9+/_-]{22}(?:==)?")


@command()
def proof(
    client: Retrying,
    place: AnyPlace,
    output: Annotated[Path, Opt("File to write the proof to; - is stdout.", "-o --output", "FILE", WRITABLE)],
    tx_id: Annotated[str | None, Positional("TX_ID")] = None,
    relationship: Annotated[
        Any, Opt("Prove that this relationship exists, or that it does not.", "", TRIPLE_NAMES, TRIPLE)
    ] = None,
    at_height: Annotated[int | None, Opt("With --relationship: its state after block N.", "", "N", HEIGHT)] = None,
    trusted_height: Annotated[int | None, Opt(TRUSTED_HELP, "", "N", HEIGHT)] = None,
) -> Said | None:
    """Write a transaction, its proof and the headers up to a trusted block to one file.

    TX_ID is hexadecimal, a UUID or base64. With --relationship the file proves that a relationship exists after a
    block, or that it does not. The proof is verified before it is written.
    """
    if (tx_id is None) == (relationship is None):
        raise click.UsageError(f"Give a TX_ID, or --relationship {TRIPLE_NAMES}.")
    if tx_id is not None and not _TX_ID.fullmatch(tx_id):
        raise click.UsageError("TX_ID must be 16 bytes in hexadecimal, as a UUID or in base64.")
    if at_height is not None and relationship is None:
        raise click.UsageError("--at-height needs --relationship.")
    asked = client.ledger.place(*place)
    if tx_id is None:
        document = asked.proof_of_relationship(*relationship, at_height=at_height)
        check: Callable[[Trusted], object] = partial(verify_relationship, document, relationship)
    else:
        document = asked.proof_of_transaction(tx_id)
        check = partial(verify_write, document, None)
    add_chain(asked, document, trusted_height)
    anchor, shown = checked(document, place, check)
    save(output, document)
    if str(output) == STDIN:
        return None
    name = f"{anchor.height}:{anchor.hash.hex()}"
    facts = {"file": str(output), "blockHeight": document.get("blockHeight"), "trust": name}
    about = f"{output}: valid if block {name} of {place} is trusted"
    if anchor.height == 0:
        about = f"{output}: valid as long as {place} has no block"
    if isinstance(shown, ProvedRelationship):
        is_there = shown.entry is not None
        facts["present"] = is_there
        about += f"; the relationship {'is' if is_there else 'is not'} there after block {shown.header.height}"
    return Said(facts, about)

"""Fetches the headers between two blocks, in pieces as large as a server gives at once."""

from __future__ import annotations

from semel.cli.failures import RefusedError
from semel.cli.ledger.asking import Facts, Ledger
from semel.cli.ledger.places import Scope
from semel.cli.ledger.telling import inner
from semel.cli.progress import progress

MOST_HEADERS = 10_000
MOST_BLOCKS = 1_000


def add_chain(ledger: Ledger, place: Scope, document: Facts, height: int) -> None:
    """Put into a proof the headers that lead to a block which is trusted, above or below its own."""
    own = document.get("blockHeight")
    if not isinstance(own, str) or not own.isdecimal():
        raise ledger.stranger()
    if height != int(own):
        lower, upper = sorted((height, int(own)))
        document["chainProof"] = {"headers": _headers(ledger, place, lower, upper)}


def _headers(ledger: Ledger, place: Scope, lower: int, upper: int) -> list[Facts]:
    """Those above one height up to another, in order."""
    headers: list[Facts] = []
    with progress(upper - lower, "Fetching headers") as advance:
        while lower < upper:
            found = _piece(ledger, place, lower, min(upper, lower + MOST_HEADERS))
            headers += found
            advance(len(found))
            lower += len(found)
    return headers


def _piece(ledger: Ledger, place: Scope, lower: int, upper: int) -> list[Facts]:
    try:
        proof = ledger.get(place.named("blocks", str(upper), "proof"), {"trustedHeight": lower})
    except RefusedError as error:
        # The upper block has lost its body. Then those below it have, too, and whole blocks are headers alone.
        if error.status != 409:
            raise
        return _from_blocks(ledger, place, lower + 1, min(upper, lower + MOST_BLOCKS))
    found = inner(proof, "chainProof", "headers")
    if not isinstance(found, list) or len(found) != upper - lower:
        raise ledger.stranger()
    return found


def _from_blocks(ledger: Ledger, place: Scope, start: int, stop: int) -> list[Facts]:
    blocks = ledger.get(f"{place.path}/blocks", {"from": start, "to": stop}).get("blocks")
    if not isinstance(blocks, list) or not 0 < len(blocks) <= stop - start + 1:
        raise ledger.stranger()
    found = [inner(block, "header") for block in blocks]
    if not all(isinstance(header, dict) for header in found):
        raise ledger.stranger()
    return [header for header in found if isinstance(header, dict)]

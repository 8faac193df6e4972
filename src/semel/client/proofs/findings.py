"""What a verified proof shows, as words for people and as facts for programs."""

from __future__ import annotations

from typing import Any, NamedTuple

from semel.client.proofs.answers import Proved, ProvedRead, ProvedRelationship, ProvedWrite
from semel.client.proofs.shapes import Header

SHOWN_CHARACTERS = 60
"""Characters of a key or a name that the words have."""


class ProofFinding(NamedTuple):
    """What a proof shows about the state or the content of a block."""

    header: Header
    words: str
    """The end of a sentence about the block, such as `there is nothing under a after it`."""
    facts: dict[str, Any]


def finding_of(proved: Proved) -> ProofFinding:
    """The finding of `verify_answer`."""
    if isinstance(proved, ProvedRead):
        return _read(proved)
    if isinstance(proved, ProvedRelationship):
        return _relationship(proved)
    return _write(proved) if isinstance(proved, ProvedWrite) else _block(proved)


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _relationship(proved: ProvedRelationship) -> ProofFinding:
    parts = {"resource": proved.resource, "relation": proved.relation, "subject": proved.subject}
    facts: dict[str, Any] = {"kind": "relationship", "present": proved.entry is not None, **parts}
    name = " ".join(map(_shortened, parts.values()))
    if proved.entry is None:
        return ProofFinding(proved.header, f"there is no relationship {name} after it", facts)
    facts["version"] = str(proved.entry.version)
    words = f"the relationship {name} is there, created by block {proved.entry.version}"
    return ProofFinding(proved.header, words, facts)


def _block(written: list[ProvedWrite]) -> ProofFinding:
    facts = {"kind": "block", "transactions": [one.transaction.id.hex() for one in written]}
    count = "one transaction" if len(written) == 1 else f"{len(written)} transactions"
    return ProofFinding(written[0].header, f"these are all of it: {count}", facts)


def _write(proved: ProvedWrite) -> ProofFinding:
    one = proved.transaction
    client, actor, name = one.client_id.decode(), one.actor.decode(), one.id.hex()
    facts = {"kind": "transaction", "transaction": name, "client": client, "sequence": str(one.sequence)}
    words = f"transaction {name} of {client} (sequence {one.sequence}, actor {actor}) is in it"
    return ProofFinding(proved.header, words, {**facts, "actor": actor, "operations": len(one.operations)})


def _read(proved: ProvedRead) -> ProofFinding:
    key, entry = proved.key.decode("utf-8", "backslashreplace"), proved.entry
    facts: dict[str, Any] = {"kind": "value", "key": key, "present": entry is not None}
    if entry is None:
        return ProofFinding(proved.header, f"there is nothing under {_shortened(key)} after it", facts)
    facts |= {"bytes": len(entry.value), "version": str(entry.version), "expires_at": str(entry.expires_at)}
    facts["withheld"] = proved.is_withheld
    ends = ", which had expired," if proved.is_expired else ", which the answer left out," if proved.is_withheld else ""
    words = f"{_shortened(key)} has a value of {len(entry.value)} bytes{ends} set by block {entry.version}"
    return ProofFinding(proved.header, words, facts)

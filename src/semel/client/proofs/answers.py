"""Verification of complete answers of a server against a trusted block hash."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping
from typing import Any, NamedTuple

from semel.client.proofs.blocks import BEFORE_BLOCKS, Trusted, headed, headed_state, included, linked, whole
from semel.client.proofs.documents import Document, ProofError, ProofPart
from semel.client.proofs.hashes import header_hash, operations_bytes, relationship_key, split_relationship_key
from semel.client.proofs.shapes import (
    MAX_STATE_SIBLINGS,
    MAX_TX_SIBLINGS,
    Entry,
    Header,
    Operation,
    ProofTransaction,
    read_merkle_proof,
    read_operation,
    read_state_proof,
    read_transaction,
    read_tx_id,
)
from semel.client.proofs.state import key_bytes, proved

_BYTES = frozenset({"value", "valueEquals"})
"""Members of a request with base64 values."""
_NUMBERS = frozenset({"sequence", "expiresAt", "expiredAt", "version"})
"""Members of a request with integers, which may be encoded in several ways."""

_PARTS = ("resource", "relation", "subject")
"""Members of a relationship."""

_REQUEST = ("idempotencyKey", "includeTxProof", "includeTxProofs", "organization", "sequence", "vault")
"""Members of a request besides the client and the operations."""


class ProvedWrite(NamedTuple):
    """A transaction, and the header of its block."""

    transaction: ProofTransaction
    header: Header


class ProvedRead(NamedTuple):
    """The entry of a key after a block; None if it is absent."""

    key: bytes
    entry: Entry | None
    header: Header
    is_withheld: bool = False
    """Whether the answer left out a value that had not expired when the block was made.

    A server does so when the value has expired since, by its own clock, which no proof covers: compare
    `entry.expires_at` with a clock that you trust.
    """

    @property
    def is_expired(self) -> bool:
        """Whether the entry had expired when the block was created, so that readers do not see it."""
        return self.entry is not None and 0 < self.entry.expires_at <= self.header.timestamp.seconds


class ProvedRelationship(NamedTuple):
    """Whether a relationship is in the state after a block."""

    resource: str
    relation: str
    subject: str
    entry: Entry | None
    """None if it is absent."""
    header: Header


Proved = ProvedRead | ProvedRelationship | ProvedWrite | list[ProvedWrite]
"""What any proof shows; a list has all transactions of a block."""


def verify_write(answer: Document, request: Document | None, trusted: Trusted) -> ProvedWrite:
    """Verify that a write is in the chain, as it was requested.

    The answer is that of a write with a proof, or of a request for a transaction or a block's proof.
    """
    part = ProofPart.of(answer, "answer")
    if part.has("success"):
        part = part.only(("success",)).part("success")
        part.only(("txId", "blockHeight", "blockHeader", "txProof", "assignedSequence", "transaction"), ("chainProof",))
    else:
        part.only(("transaction", "blockHeader", "txProof"), ("blockHeight", "chainProof"))
    header = headed(part.part("blockHeader"))
    _match_height(part, header)
    linked(trusted, _links(part), header)
    transaction = read_transaction(part.part("transaction"))
    if part.has("txId") and read_tx_id(part, "txId") != transaction.id:
        raise ProofError("The answer's txId is not that of its transaction.")
    if part.has("assignedSequence") and part.number("assignedSequence") != transaction.sequence:
        raise ProofError("The answer's assignedSequence is not that of its transaction.")
    if request is not None:
        _match_request(ProofPart.of(_as_told(request), "request"), transaction)
    included(transaction, read_merkle_proof(part.part("txProof"), MAX_TX_SIBLINGS), header)
    return ProvedWrite(transaction, header)


def verify_read(answer: Document, key: str | bytes | None, trusted: Trusted) -> ProvedRead:
    """Verify that a key has the answered value, or none. Without a key, the one that the proof names is used.

    An answer without a value proves absence only if the result has no entry, or one that `is_expired`. If it
    `is_withheld`, there was a value.
    """
    part = ProofPart.of(answer, "answer")
    part.only(("blockHeight", "blockHeader", "merkleProof", "stateProof"), ("value", "chainProof"))
    header = headed_state(part.part("blockHeader"))
    _match_height(part, header)
    linked(trusted, _links(part), header)
    state = read_state_proof(part.part("stateProof"))
    way = read_merkle_proof(part.part("merkleProof"), MAX_STATE_SIBLINGS)
    wanted = state.entry.key if key is None else key_bytes(key)
    read = ProvedRead(wanted, proved(header, way, state, wanted), header)
    _match_value(part, read)
    has_value = part.has("value") or read.entry is None or read.is_expired
    return read if has_value else read._replace(is_withheld=True)


def verify_relationship(
    answer: Document, relationship: tuple[str, str, str] | None, trusted: Trusted
) -> ProvedRelationship:
    """Verify that a relationship is present or absent. Without one, the one that the proof names is used.

    A relationship is its resource, relation and subject.
    """
    part = ProofPart.of(answer, "answer")
    part.only(("blockHeight", "blockHeader", "merkleProof", "stateProof"), ("relationships", "chainProof"))
    header = headed_state(part.part("blockHeader"))
    _match_height(part, header)
    linked(trusted, _links(part), header)
    state = read_state_proof(part.part("stateProof"))
    way = read_merkle_proof(part.part("merkleProof"), MAX_STATE_SIBLINGS)
    wanted = split_relationship_key(state.entry.key) if relationship is None else relationship
    if wanted is None:
        raise ProofError("The state proof is not about a relationship.")
    entry = proved(header, way, state, _relationship_bytes(wanted))
    if entry is not None and (entry.value or entry.expires_at):
        raise ProofError("The entry in the state proof is not that of a relationship.")
    _match_relationships(part, wanted if entry is not None else None)
    return ProvedRelationship(*wanted, entry, header)


def relationship_in(answer: Document) -> tuple[str, str, str] | None:
    """The relationship that a proof names, unverified; None if it names something else."""
    part = ProofPart.of(answer, "answer")
    return split_relationship_key(part.part("stateProof").octets("key")) if part.has("stateProof") else None


def _relationship_bytes(relationship: tuple[str, str, str]) -> bytes:
    try:
        return relationship_key(*relationship)
    except UnicodeEncodeError:
        raise ProofError("The requested relationship cannot be encoded as UTF-8.") from None


def _match_relationships(part: ProofPart, expected: tuple[str, str, str] | None) -> None:
    """Check that the answer names the proved relationship, or none if it is absent."""
    if not part.has("relationships"):
        if expected is not None:
            raise ProofError("The answer has no relationship, but its proof has one.")
        return
    told = [one.only(_PARTS) for one in part.parts("relationships", 1)]
    if expected is None or len(told) != 1:
        raise ProofError("The number of relationships in the answer differs from that in its proof.")
    if tuple(told[0].text(name) for name in _PARTS) != tuple(name.encode("utf-8") for name in expected):
        raise ProofError("The answer's relationship is not the one in its proof.")


def verify_whole_block(answer: Document, trusted: Trusted) -> list[ProvedWrite]:
    """Verify that a block is in the chain, with all of its transactions."""
    part = ProofPart.of(answer, "answer").only(("block",), ("chainProof",))
    block = part.part("block").only(("header",), ("transactions",))
    header = headed(block.part("header"))
    transactions = [read_transaction(one) for one in block.parts("transactions")]
    linked(trusted, _links(part), header)
    whole(header, transactions)
    return [ProvedWrite(transaction, header) for transaction in transactions]


def verify_answer(
    answer: Document,
    trusted: Trusted,
    *,
    key: str | bytes | None = None,
    relationship: tuple[str, str, str] | None = None,
    request: Document | None = None,
) -> Proved:
    """Verify a proof of any kind. If a key, a relationship or a request is given, the proof must be about it."""
    part = ProofPart.of(answer, "answer")
    is_state, is_block = part.has("stateProof"), part.has("block")
    if request is not None and (is_state or is_block):
        raise ProofError("The file does not prove a write, so it cannot prove the request.")
    if is_state and (relationship is not None or (key is None and relationship_in(answer) is not None)):
        return verify_relationship(answer, relationship, trusted)
    if is_state:
        return verify_read(answer, key, trusted)
    if key is not None:
        raise ProofError("The file is not a proof of a key.")
    if relationship is not None:
        raise ProofError("The file is not a proof of a relationship.")
    return verify_whole_block(answer, trusted) if is_block else verify_write(answer, request, trusted)


def anchor_of(answer: Document) -> Trusted:
    """The block that a proof leads to, unverified: the end of its chain, or the block itself.

    It proves nothing until its hash is compared with one from another source.
    """
    part = ProofPart.of(answer, "answer")
    if part.has("success"):
        part = part.part("success")
    header = headed_state(part.part("block").part("header") if part.has("block") else part.part("blockHeader"))
    links = _links(part)
    scope = (header.organization, header.vault)
    if header.height == 0:
        return Trusted(*BEFORE_BLOCKS[:2], *scope)
    if links and links[-1].height > header.height:
        return Trusted(links[-1].height, header_hash(links[-1]), *scope)
    if links:
        return Trusted(links[0].height - 1, links[0].previous_hash, *scope)
    return Trusted(header.height, header_hash(header), *scope)


def _match_height(part: ProofPart, header: Header) -> None:
    if part.has("blockHeight") and part.number("blockHeight") != header.height:
        raise ProofError("The answer's blockHeight is not that of its header.")


def _links(part: ProofPart) -> list[Header]:
    if not part.has("chainProof"):
        return []
    return [headed(one) for one in part.part("chainProof").only((), ("headers",)).parts("headers")]


def _match_value(part: ProofPart, read: ProvedRead) -> None:
    if not part.has("value"):
        if read.entry is not None and read.entry.expires_at == 0:
            raise ProofError("The answer has no value, but its proof has one that does not expire.")
        return
    if read.entry is None or read.is_expired:
        raise ProofError("The answer has a value, but its proof has no readable one.")
    if part.octets("value") != read.entry.value:
        raise ProofError("The answer's value is not the one in its proof.")


def _match_request(request: ProofPart, transaction: ProofTransaction) -> None:
    request.only(("clientId", "operations"), _REQUEST)
    client = request.members["clientId"]
    client_id = request.part("clientId").only(("id",)).text("id") if isinstance(client, Mapping) else None
    if (request.text("clientId") if client_id is None else client_id) != transaction.client_id:
        raise ProofError("The client of the transaction differs from that of the request.")
    if request.has("sequence") and request.number("sequence") != transaction.sequence:
        raise ProofError("The sequence of the transaction differs from that of the request.")
    if operations_bytes(tuple(_operations(request))) != operations_bytes(transaction.operations):
        raise ProofError("The transaction does not have the operations of the request.")


def _operations(request: ProofPart) -> list[Operation]:
    """The operations of a write, or of all groups of a batch."""
    found: list[Operation] = []
    for part in request.parts("operations"):
        grouped = part.parts("operations") if part.has("operations") else [part]
        found += map(read_operation, grouped)
    return found


def _as_told(request: Document) -> dict[str, Any]:
    """A request in the encoding of answers; clients may encode names, numbers and bytes in other ways."""
    told = _spelled("", ProofPart.of(request, "request").members)
    return dict(told)


def _spelled(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        members = {_camel(str(member)): one for member, one in value.items()}
        if len(members) != len(value):
            raise ProofError("The request has a member under two names.")
        return {member: _spelled(member, one) for member, one in members.items() if one is not None}
    if isinstance(value, list):
        return [_spelled("", one) for one in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if name in _NUMBERS:
        return _plain_number(value)
    return _padded(value) if name in _BYTES and isinstance(value, str) else value


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def _plain_number(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.lstrip("0") or "0" if isinstance(value, str) and value.isdecimal() else value


def _padded(text: str) -> str:
    plain = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return b64encode(b64decode(plain + "=" * (-len(plain) % 4), validate=True)).decode()
    except (Base64Error, ValueError):
        return text

"""The hashes of the published format, in a few lines of the tests' own: operations, transactions, blocks."""

from __future__ import annotations

import hashlib
import itertools
import re
from datetime import UTC, datetime

from tests.ledger.words import ZERO_HASH, Message, data

INSTANT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{3}|\d{6}|\d{9}))?Z")


def sized(content: str | bytes) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return len(raw).to_bytes(4, "little") + raw


def wide(number: int | str) -> bytes:
    return int(number).to_bytes(8, "big")


def instant(timestamp: str) -> tuple[int, int]:
    """Seconds and nanoseconds of a timestamp of the wire."""
    match = INSTANT.fullmatch(timestamp)
    assert match, timestamp
    seconds = datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp()
    return round(seconds), int((match[2] or "").ljust(9, "0"))


def _time(timestamp: str) -> bytes:
    seconds, nanoseconds = instant(timestamp)
    return seconds.to_bytes(8, "big", signed=True) + nanoseconds.to_bytes(4, "big")


def _condition(condition: Message) -> bytes:
    if not condition:
        return b"\0"
    [(name, value)] = condition.items()
    if name == "version":
        return b"\3" + wide(value)
    if name == "valueEquals":
        return b"\4" + sized(data(value))
    return b"\1" if (name == "notExists") is value else b"\2"


def _operation(operation: Message) -> bytes:
    [(name, fields)] = operation.items()
    if name in ("createRelationship", "deleteRelationship"):
        kind = b"\1" if name == "createRelationship" else b"\2"
        return kind + b"".join(sized(fields[part]) for part in ("resource", "relation", "subject"))
    if name == "setEntity":
        condition = _condition(fields.get("condition", {}))
        return (
            b"\3" + sized(fields["key"]) + sized(data(fields["value"])) + condition + wide(fields.get("expiresAt", 0))
        )
    if name == "deleteEntity":
        return b"\4" + sized(fields["key"])
    return b"\5" + sized(fields["key"]) + wide(fields["expiredAt"])


def operations_bytes(operations: list[Message]) -> bytes:
    return len(operations).to_bytes(4, "little") + b"".join(_operation(operation) for operation in operations)


def transaction_hash(transaction: Message) -> bytes:
    """Of a transaction as JSON."""
    content = (
        data(transaction["id"]["id"])
        + sized(transaction["clientId"]["id"])
        + wide(transaction["sequence"])
        + sized(transaction["actor"])
        + operations_bytes(transaction["operations"])
        + _time(transaction["timestamp"])
    )
    return hashlib.sha256(content).digest()


def block_hash(header: Message) -> bytes:
    """Of a header as JSON: exactly 148 bytes."""
    content = (
        wide(header["height"])
        + wide(header["organization"]["slug"])
        + wide(header.get("vault", {"slug": 0})["slug"])
        + b"".join(data(header[part]["value"]) for part in ("previousHash", "txMerkleRoot", "stateRoot"))
        + _time(header["timestamp"])
        + wide(header["term"])
        + wide(header["committedIndex"])
    )
    assert len(content) == 148
    return hashlib.sha256(content).digest()


def merkle_root(leaves: list[bytes]) -> bytes:
    """Pairs are hashed together; an odd level repeats its last node."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    while len(leaves) > 1:
        leaves += leaves[-1:] * (len(leaves) % 2)
        leaves = [hashlib.sha256(leaves[at] + leaves[at + 1]).digest() for at in range(0, len(leaves), 2)]
    return leaves[0]


def check_block(block: Message) -> None:
    """The root is that of the only transaction, whose time is the block's."""
    header, [transaction] = block["header"], block["transactions"]
    assert data(header["txMerkleRoot"]["value"]) == merkle_root([transaction_hash(transaction)]), block
    assert transaction["timestamp"] == header["timestamp"], block
    assert len(data(transaction["id"]["id"])) == 16, block


def check_chain(headers: list[Message], previous: bytes = ZERO_HASH) -> bytes:
    """Heights follow one another, each names the hash of the one before; the hash of the last."""
    for earlier, later in itertools.pairwise(headers):
        assert int(later["height"]) == int(earlier["height"]) + 1, later
        assert int(later["term"]) >= int(earlier["term"]), later
        assert int(later["committedIndex"]) > int(earlier["committedIndex"]), later
        assert instant(later["timestamp"]) >= instant(earlier["timestamp"]), later
    for header in headers:
        assert data(header["previousHash"]["value"]) == previous, header
        previous = block_hash(header)
    return previous

"""A ledger in the plainest possible words, which makes the documents that a verifier is tried with.

It is written from the description of the format alone and knows nothing of the server or of the verifier: every root is
computed from all entries again, and every proof from the whole tree.
"""

from __future__ import annotations

import hashlib
import struct
from base64 import b64decode, b64encode
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

ZERO = bytes(32)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Json = dict[str, Any]
State = dict[bytes, tuple[bytes, int, int]]
"""Value, end and version by key."""


def sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def sized(content: bytes) -> bytes:
    return struct.pack("<I", len(content)) + content


def u64(number: int) -> bytes:
    return struct.pack(">Q", number)


def seahash(content: bytes) -> int:
    """By the reference: four lanes in turn, each word mixed into the next lane."""
    lanes = [0x16F11FE89B0D677C, 0xB480A793D8E6C86C, 0x6FE2E5AAF078EBC9, 0x14F994A4C5259381]
    padded = content + bytes(-len(content) % 8)
    for turn, (word,) in enumerate(struct.iter_unpack("<Q", padded)):
        lanes[turn % 4] = diffuse(lanes[turn % 4] ^ word)
    return diffuse(lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3] ^ len(content))


def diffuse(word: int) -> int:
    word = (word * 0x6EED0E9DA4D94A4F) % 2**64
    word ^= (word >> 32) >> (word >> 60)
    return (word * 0x6EED0E9DA4D94A4F) % 2**64


def relationship_key(resource: str, relation: str, subject: str) -> bytes:
    return b"\x00" + sized(resource.encode()) + sized(relation.encode()) + sized(subject.encode())


def leaf(key: bytes, state: State) -> bytes:
    value, expires_at, version = state[key]
    return sha(b"\x00", sized(key), sized(value), u64(expires_at), u64(version))


def bits(key: bytes) -> str:
    return "".join(f"{byte:08b}" for byte in sha(key))


def subtree(keys: list[bytes], depth: int, state: State) -> bytes:
    if not keys:
        return ZERO
    if len(keys) == 1:
        return leaf(keys[0], state)
    left = [key for key in keys if bits(key)[depth] == "0"]
    right = [key for key in keys if bits(key)[depth] == "1"]
    return sha(b"\x01", subtree(left, depth + 1, state), subtree(right, depth + 1, state))


def bucket_keys(number: int, state: State) -> list[bytes]:
    return [key for key in state if seahash(key) % 256 == number]


def bucket_root(number: int, state: State) -> bytes:
    keys = bucket_keys(number, state)
    return subtree(keys, 0, state) if keys else sha(b"")


def state_root(state: State) -> bytes:
    return sha(*(bucket_root(number, state) for number in range(256)))


def merkle_root(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return leaves[0]
    if not leaves:
        return sha(b"")
    even = leaves + leaves[-1:] if len(leaves) % 2 else leaves
    return merkle_root([sha(even[at], even[at + 1]) for at in range(0, len(even), 2)])


def merkle_siblings(leaves: list[bytes], at: int) -> list[Json]:
    if len(leaves) == 1:
        return []
    even = leaves + leaves[-1:] if len(leaves) % 2 else leaves
    own = sibling(even[at ^ 1], is_left=bool(at % 2))
    return [own, *merkle_siblings([sha(even[at], even[at + 1]) for at in range(0, len(even), 2)], at // 2)]


def sibling(content: bytes, *, is_left: bool) -> Json:
    return {"hash": hashed(content), "direction": "DIRECTION_LEFT" if is_left else "DIRECTION_RIGHT"}


def b64(content: bytes) -> str:
    return b64encode(content).decode()


def hashed(content: bytes) -> Json:
    return {"value": b64(content)}


def time_text(seconds: int, nanos: int) -> str:
    """RFC 3339 with as many digits as are needed, in threes."""
    digits = f"{nanos:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    when = (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    return f"{when}{'.' if digits else ''}{digits}Z"


def encode(operation: Json) -> bytes:
    ((kind, facts),) = operation.items()
    if kind in ("createRelationship", "deleteRelationship"):
        number = b"\x01" if kind == "createRelationship" else b"\x02"
        return number + b"".join(sized(facts[name].encode()) for name in ("resource", "relation", "subject"))
    key = sized(facts["key"].encode())
    if kind == "setEntity":
        ends = u64(int(facts.get("expiresAt", 0)))
        return b"\x03" + key + sized(raw(facts["value"])) + encode_condition(facts.get("condition", {})) + ends
    return b"\x04" + key if kind == "deleteEntity" else b"\x05" + key + u64(int(facts["expiredAt"]))


def encode_condition(condition: Json) -> bytes:
    if not condition:
        return b"\x00"
    ((kind, value),) = condition.items()
    if kind == "version":
        return b"\x03" + u64(int(value))
    if kind == "valueEquals":
        return b"\x04" + sized(raw(value))
    return b"\x01" if value is (kind == "notExists") else b"\x02"


def raw(text: str) -> bytes:
    return b64decode(text)


def encode_operations(operations: list[Json]) -> bytes:
    return struct.pack("<I", len(operations)) + b"".join(map(encode, operations))


class SlowLedger:
    """One scope: blocks, and the state after each."""

    def __init__(self, organization: int = 7001, vault: int = 9001) -> None:
        self.organization = organization
        self.vault = vault
        self.headers: list[Json] = []
        self.hashes: list[bytes] = []
        self.transactions: list[list[Json]] = []
        self.states: list[State] = [{}]

    def commit(self, *requests: Json, index: int, seconds: int, nanos: int = 0, term: int = 1) -> None:
        """One block, of as many transactions as are given: id, client, sequence, actor, operations."""
        height = len(self.headers) + 1
        state = dict(self.states[-1])
        for request in requests:
            for operation in request["operations"]:
                apply(operation, state, height)
        told = [transaction(request, seconds, nanos) for request in requests]
        leaves = [sha(transaction_bytes(request, seconds, nanos)) for request in requests]
        previous = self.hashes[-1] if self.hashes else ZERO
        roots = (merkle_root(leaves), state_root(state))
        numbers = u64(height) + u64(self.organization) + u64(self.vault)
        times = struct.pack(">qI", seconds, nanos) + u64(term) + u64(index)
        self.hashes.append(sha(numbers, previous, *roots, times))
        self.headers.append(
            {
                "height": str(height),
                "organization": {"slug": str(self.organization)},
                "vault": {"slug": str(self.vault)},
                "previousHash": hashed(previous),
                "txMerkleRoot": hashed(roots[0]),
                "stateRoot": hashed(roots[1]),
                "timestamp": time_text(seconds, nanos),
                "leaderId": {"id": "semel"},
                "term": str(term),
                "committedIndex": str(index),
            }
        )
        self.transactions.append(told)
        self.states.append(state)

    def leaves(self, height: int) -> list[bytes]:
        return [sha(told_bytes(one)) for one in self.transactions[height - 1]]

    def block(self, height: int) -> Json:
        """As it is told."""
        return deepcopy({"header": self.headers[height - 1], "transactions": self.transactions[height - 1]})

    def tx_proof(self, height: int, at: int = 0) -> Json:
        """That a transaction is in its block."""
        leaves = self.leaves(height)
        siblings = merkle_siblings(leaves, at)
        return {"leafHash": hashed(leaves[at]), **({"siblings": siblings} if siblings else {})}

    def written(self, height: int, at: int = 0) -> Json:
        """The answer to a write."""
        told = self.transactions[height - 1][at]
        success = {
            "txId": told["id"],
            "blockHeight": str(height),
            "blockHeader": self.headers[height - 1],
            "txProof": self.tx_proof(height, at),
            "assignedSequence": told["sequence"],
            "transaction": told,
        }
        # Copies, and not shared: the id occurs twice in an answer, and both are places of their own.
        return {"success": {name: deepcopy(value) for name, value in success.items()}}

    def read(self, key: bytes, height: int) -> Json:
        """The answer to a verified read."""
        state = self.states[height]
        value, expires_at, version = state.get(key, (b"", 0, 0))
        number = seahash(key) % 256
        leaf_hash, siblings, witness = way(key, state)
        proof = {
            "key": b64(key),
            "value": b64(value),
            "expiresAt": str(expires_at),
            "version": str(version),
            "bucketId": number,
            "bucketRoot": hashed(bucket_root(number, state)),
            "otherBucketRoots": [hashed(bucket_root(one, state)) for one in range(256) if one != number],
            "blockHeight": str(height),
            "stateRoot": hashed(state_root(state)),
        }
        if witness is not None:
            theirs = state[witness]
            proof["bucketEntries"] = [
                {
                    "key": b64(witness),
                    "value": b64(theirs[0]),
                    "expiresAt": str(theirs[1]),
                    "version": str(theirs[2]),
                }
            ]
        return {
            **({"value": b64(value)} if version else {}),
            "blockHeight": str(height),
            "blockHeader": deepcopy(self.headers[height - 1]),
            "merkleProof": {"leafHash": hashed(leaf_hash), **({"siblings": siblings} if siblings else {})},
            "stateProof": proof,
        }

    def related(self, relationship: tuple[str, str, str], height: int) -> Json:
        """The answer to a question for a relationship with its proof."""
        answer = self.read(relationship_key(*relationship), height)
        if answer.pop("value", None) is not None:
            answer["relationships"] = [dict(zip(("resource", "relation", "subject"), relationship, strict=True))]
        return answer

    def chain(self, above: int, upto: int) -> Json:
        """The headers between two blocks, the lower one left out."""
        return {"headers": deepcopy(self.headers[above:upto])}


def way(key: bytes, state: State) -> tuple[bytes, list[Json], bytes | None]:
    """From where a key stands, or would, up to its bucket's root; and who stands in its place."""
    keys = bucket_keys(seahash(key) % 256, state)
    siblings: list[Json] = []
    depth = 0
    while len(keys) > 1:
        bit = bits(key)[depth]
        others = [one for one in keys if bits(one)[depth] != bit]
        keys = [one for one in keys if bits(one)[depth] == bit]
        siblings.insert(0, sibling(subtree(others, depth + 1, state), is_left=bit == "1"))
        depth += 1
    if not keys:
        return ZERO, siblings, None
    return leaf(keys[0], state), siblings, None if keys[0] == key else keys[0]


def apply(operation: Json, state: State, height: int) -> None:
    ((kind, facts),) = operation.items()
    if kind == "setEntity":
        state[facts["key"].encode()] = (raw(facts["value"]), int(facts.get("expiresAt", 0)), height)
    elif kind in ("deleteEntity", "expireEntity"):
        state.pop(facts["key"].encode(), None)
    else:
        key = relationship_key(facts["resource"], facts["relation"], facts["subject"])
        if kind == "deleteRelationship":
            state.pop(key, None)
        elif key not in state:
            state[key] = (b"", 0, height)


def transaction_bytes(request: Json, seconds: int, nanos: int) -> bytes:
    who = sized(request["client"].encode()) + u64(request["sequence"]) + sized(request["actor"].encode())
    tx_id: bytes = request["id"]
    return tx_id + who + encode_operations(request["operations"]) + struct.pack(">qI", seconds, nanos)


def transaction(request: Json, seconds: int, nanos: int) -> Json:
    return {
        "id": {"id": b64(request["id"])},
        "clientId": {"id": request["client"]},
        "sequence": str(request["sequence"]),
        "operations": request["operations"],
        "timestamp": time_text(seconds, nanos),
        "actor": request["actor"],
    }


def told_bytes(told: Json) -> bytes:
    when, _, digits = told["timestamp"].removesuffix("Z").partition(".")
    seconds = int((datetime.fromisoformat(f"{when}+00:00") - EPOCH).total_seconds())
    request = {
        "id": raw(told["id"]["id"]),
        "client": told["clientId"]["id"],
        "sequence": int(told["sequence"]),
        "actor": told["actor"],
        "operations": told["operations"],
    }
    return transaction_bytes(request, seconds, int(digits.ljust(9, "0") if digits else 0))


def request_of(number: int, client: str, sequence: int, actor: str, *operations: Json) -> Json:
    """A transaction to be committed; its id is sixteen bytes that count up from a number."""
    return {
        "id": bytes(range(number, number + 16)),
        "client": client,
        "sequence": sequence,
        "actor": actor,
        "operations": list(operations),
    }


def set_entity(key: str, value: bytes, **rest: Any) -> Json:
    return {"setEntity": {"key": key, "value": b64(value), **rest}}


def relate(kind: str, resource: str, relation: str, subject: str) -> Json:
    return {kind: {"resource": resource, "relation": relation, "subject": subject}}


CROWD = ("key:58", "key:500", "key:2083", "key:2394")
"""Entities of one bucket, whose ways part at the second, the fifth and the seventh bit."""


def three_blocks() -> SlowLedger:
    """The blocks of the published vectors."""
    ledger = SlowLedger()
    viewer = ("doc:readme", "viewer", "user:1")
    first = set_entity("user:1", b"alice", condition={"notExists": True})
    related = relate("createRelationship", *viewer)
    ledger.commit(
        request_of(0, "app-1", 1, "client:app-1", first, related), index=1, seconds=1767225600, nanos=123456789
    )
    changed = set_entity("user:1", b"bob", condition={"version": "1"}, expiresAt="1767312000")
    gone = {"deleteEntity": {"key": "user:9"}}
    ledger.commit(
        request_of(16, "app-1", 2, "user:789", changed, gone, relate("deleteRelationship", *viewer)),
        index=5,
        seconds=1767225601,
    )
    crowd = [set_entity(key, letter.encode()) for key, letter in zip(CROWD, "abcd", strict=True)]
    ledger.commit(
        request_of(32, "app-2", 1, "client:app-2", *crowd), index=6, seconds=1767225602, nanos=500_000_000, term=2
    )
    return ledger

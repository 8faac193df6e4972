"""The ledger's JSON as values and back: operations, transactions and headers, for whoever hashes them again."""

from __future__ import annotations

import base64
import calendar
import time
from typing import Any

from semel.surfaces.ledger.model import (
    BlockHeader,
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    Entity,
    ExpireEntity,
    LedgerPlace,
    LedgerTime,
    LedgerTransaction,
    Operation,
    SetCondition,
    SetEntity,
)

Json = dict[str, Any]
TIPS = ("resource", "relation", "subject")


def to_base64(value: bytes) -> str:
    """As JSON has bytes."""
    return base64.b64encode(value).decode()


def from_base64(value: str) -> bytes:
    """And back."""
    return base64.b64decode(value, validate=True)


def path_of(place: LedgerPlace) -> str:
    """Where a place is on the wire."""
    return f"/ledger/v1/orgs/{place.org}" + (f"/vaults/{place.vault}" if place.vault else "")


def write_operation(operation: Operation) -> Json:
    """As a client sends it."""
    match operation:
        case SetEntity(key, value, expires_at, condition):
            body: Json = {"key": key.decode(), "value": to_base64(value)}
            body |= {"expiresAt": str(expires_at)} if expires_at else {}
            return {"setEntity": body | ({} if condition is None else {"condition": _write_condition(condition)})}
        case DeleteEntity(key):
            return {"deleteEntity": {"key": key.decode()}}
        case CreateRelationship() | DeleteRelationship():
            name = "createRelationship" if isinstance(operation, CreateRelationship) else "deleteRelationship"
            return {name: {tip: getattr(operation, tip).decode() for tip in TIPS}}
    raise ValueError(f"no client sends {operation}")


def _write_condition(condition: SetCondition) -> Json:
    match condition.check:
        case ConditionKind.NOT_EXISTS:
            return {"notExists": True}
        case ConditionKind.MUST_EXIST:
            return {"mustExists": True}
        case ConditionKind.VERSION:
            return {"version": str(condition.version)}
        case ConditionKind.VALUE:
            return {"valueEquals": to_base64(condition.value)}


def read_operation(document: Json) -> Operation:
    """As a server tells it."""
    ((name, body),) = document.items()
    match name:
        case "setEntity":
            value, expires_at = from_base64(body["value"]), int(body.get("expiresAt", "0"))
            return SetEntity(body["key"].encode(), value, expires_at, _read_condition(body.get("condition")))
        case "deleteEntity":
            return DeleteEntity(body["key"].encode())
        case "expireEntity":
            return ExpireEntity(body["key"].encode(), int(body["expiredAt"]))
        case "createRelationship":
            return CreateRelationship(*(body[tip].encode() for tip in TIPS))
        case "deleteRelationship":
            return DeleteRelationship(*(body[tip].encode() for tip in TIPS))
    raise ValueError(f"nobody has sent {document}")


def _read_condition(document: Json | None) -> SetCondition | None:
    if not document:
        return None
    ((name, given),) = document.items()
    match name:
        case "notExists":
            return SetCondition(ConditionKind.NOT_EXISTS if given else ConditionKind.MUST_EXIST)
        case "mustExists":
            return SetCondition(ConditionKind.MUST_EXIST if given else ConditionKind.NOT_EXISTS)
        case "version":
            return SetCondition(ConditionKind.VERSION, version=int(given))
        case "valueEquals":
            return SetCondition(ConditionKind.VALUE, value=from_base64(given))
    raise ValueError(f"no condition is called {name}")


def read_instant(text: str) -> LedgerTime:
    """A time with up to nine digits behind the point."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S"))
    return LedgerTime(seconds, int(fraction.ljust(9, "0")) if fraction else 0)


def read_header(document: Json) -> BlockHeader:
    """A header."""
    return BlockHeader(
        height=int(document["height"]),
        place=LedgerPlace(int(document["organization"]["slug"]), int(document.get("vault", {}).get("slug", "0"))),
        previous_hash=from_base64(document["previousHash"]["value"]),
        tx_root=from_base64(document["txMerkleRoot"]["value"]),
        state_root=from_base64(document["stateRoot"]["value"]),
        at=read_instant(document["timestamp"]),
        term=int(document["term"]),
        committed_index=int(document["committedIndex"]),
        leader=document["leaderId"]["id"].encode(),
    )


def read_transaction(document: Json) -> LedgerTransaction:
    """A transaction, whole."""
    return LedgerTransaction(
        id=from_base64(document["id"]["id"]),
        client=document["clientId"]["id"].encode(),
        sequence=int(document["sequence"]),
        operations=tuple(map(read_operation, document["operations"])),
        at=read_instant(document["timestamp"]),
        actor=document["actor"].encode(),
    )


def read_entity(document: Json) -> Entity:
    """An entity as a list has it."""
    expires_at, version = int(document.get("expiresAt", "0")), int(document["version"])
    return Entity(document["key"].encode(), from_base64(document["value"]), expires_at, version)

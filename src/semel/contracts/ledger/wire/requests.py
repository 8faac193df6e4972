"""Parsing of bodies: writes, batches, batch reads, and admin calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from semel.contracts.fields import Fields
from semel.contracts.ledger.commands import OrgSettings, Quota
from semel.contracts.ledger.limits import MAX_BATCH_KEYS
from semel.contracts.ledger.model import ORG_STATUSES, VAULT_STATUSES, Operation, Status
from semel.contracts.ledger.orders import check_quota
from semel.contracts.ledger.refusals import RefusedLedger, invalid
from semel.contracts.ledger.wire.enums import CONSISTENCIES, ORG_STATUS_NAMES, RETENTION_MODES, VAULT_STATUS_NAMES
from semel.contracts.ledger.wire.members import (
    Shape,
    checked_text,
    choice,
    flag,
    inside,
    items,
    not_json,
    number,
    parse_body,
    small,
    text,
    unbase64,
)
from semel.contracts.ledger.wire.operations import parse_operations
from semel.kernel.idempotency_key import InvalidKeyError, parse_idempotency_key, unwrap
from semel.kernel.json_error import JsonError

PIECES_EACH = 64
"""Strings, brackets and commas that one operation may take, with a group of its own and all that may be null."""
_KEY_BYTES = 16
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEADER = "Idempotency-Key"

_WRITE = Shape("clientId", "sequence", "idempotencyKey", "operations", "includeTxProof")
_BATCH = Shape("clientId", "sequence", "idempotencyKey", "operations", "includeTxProofs")
_GROUP = Shape("operations")
_CLIENT = Shape("id")
_BATCH_READ = Shape("keys", "consistency")
_ORG = Shape("name", "shardId", "quota")
_QUOTA = Shape("maxStorageBytes", "maxVaults", "maxWriteOpsPerSec", "maxReadOpsPerSec")
_ORG_CHANGE = Shape("evictionInterval", "ttlSeconds", "fence", "status")
_VAULT = Shape("retentionPolicy", "replicationFactor", "initialNodes")
"""The store decides where data is stored: members that choose shards and nodes are accepted and ignored."""
_RETENTION = Shape("mode", "retentionBlocks")
_VAULT_CHANGE = Shape("status")


class Draft(NamedTuple):
    """One transaction that a caller wants committed."""

    client: str
    sequence: int | None
    key: bytes
    operations: tuple[Operation, ...]
    wants_proof: bool


def parse_write(body: bytes, fields: Fields, max_operations: int) -> Draft:
    """A write; its key may be in the header instead. Operations are counted before they are parsed."""
    members = parse_body(body, _WRITE, PIECES_EACH * (1 + max_operations))
    values = items(members, "operations", "body", partial(check_count, most=max_operations))
    try:
        operations = parse_operations(values, "operations")
    except JsonError as error:
        raise not_json(error) from None
    return _draft(members, fields, operations, "includeTxProof")


def parse_batch(body: bytes, fields: Fields, max_operations: int) -> Draft:
    """The same with its operations in groups, of which there are no more than there may be operations."""
    members = parse_body(body, _BATCH, PIECES_EACH * (1 + max_operations))
    groups = items(members, "operations", "body", partial(check_count, most=max_operations))
    operations: list[Operation] = []
    try:
        for place, value in enumerate(groups):
            _add_group(value, f"operations[{place}]", operations, max_operations)
    except JsonError as error:
        raise not_json(error) from None
    return _draft(members, fields, operations, "includeTxProofs")


def _add_group(value: object, path: str, operations: list[Operation], most: int) -> None:
    before = len(operations)
    members = _GROUP.members(value, path)
    values = items(members, "operations", path, lambda count: check_count(before + count, most))
    operations += parse_operations(values, f"{path}.operations")


def check_count(count: int, most: int) -> None:
    """Refuse more operations, or groups of them, than a transaction may have."""
    if count > most:
        raise invalid(f"A transaction has 1 to {most} operations.", "operations")


def _draft(members: Mapping[str, Any], fields: Fields, operations: list[Operation], proof: str) -> Draft:
    return Draft(
        _client(members),
        number(members, "sequence", "body"),
        _key(members, fields),
        tuple(operations),
        flag(members, proof, "body") or False,
    )


def _client(members: Mapping[str, Any]) -> str:
    """The id alone, or the message that it is over gRPC."""
    value = members.get("clientId")
    if isinstance(value, dict):
        return text(_CLIENT.members(value, "clientId"), "id", "clientId")
    return text(members, "clientId", "body")


def _key(members: Mapping[str, Any], fields: Fields) -> bytes:
    given = _write_key(text(members, "idempotencyKey", "body"), "idempotencyKey")
    header = _header_key(fields)
    if header is None or header == given:
        return given
    if given:
        raise invalid(f"The {_HEADER} header and idempotencyKey name different keys.", "idempotencyKey")
    return header


def _header_key(fields: Fields) -> bytes | None:
    values = fields.all(b"idempotency-key")
    if not values:
        return None
    if len(values) > 1:
        raise invalid(f"Send the {_HEADER} header once; it was given more than once.", _HEADER)
    key = _write_key(unwrap(values[0].strip(b" \t")).decode("latin-1"), _HEADER)
    if not key:
        raise invalid(f"The {_HEADER} is empty; send 16 bytes in base64, or a UUID.", _HEADER)
    return key


def _write_key(given: str, path: str) -> bytes:
    """The key of a write: sixteen bytes in base64, or a UUID; none is empty."""
    if _UUID.fullmatch(given):
        return bytes.fromhex(given.replace("-", ""))
    key = unbase64(given)
    if key is None or len(key) not in (0, _KEY_BYTES):
        raise invalid(f"{path} must be {_KEY_BYTES} bytes in base64, or a UUID.", path)
    return key


def creation_key(fields: Fields) -> bytes:
    """The key under which something is made: any text, as on the other surfaces; empty without one."""
    try:
        return parse_idempotency_key(fields.all(b"idempotency-key")) or b""
    except InvalidKeyError as error:
        raise invalid(str(error), _HEADER) from None


def parse_batch_read(body: bytes) -> list[bytes]:
    """The keys that are to be read at once."""
    members = parse_body(body, _BATCH_READ, PIECES_EACH * (1 + MAX_BATCH_KEYS))
    choice(members, "consistency", "body", CONSISTENCIES)
    keys = items(members, "keys", "body", _check_keys)
    try:
        return [checked_text(small(key), f"keys[{place}]").encode() for place, key in enumerate(keys)]
    except JsonError as error:
        raise not_json(error) from None


def _check_keys(count: int) -> None:
    if count > MAX_BATCH_KEYS:
        raise invalid(f"keys may have at most {MAX_BATCH_KEYS} keys, and has {count}.", "keys")


class OrgDraft(NamedTuple):
    """An organization that a caller wants created."""

    name: str
    quota: Quota


def parse_org(body: bytes) -> OrgDraft:
    """The name of a new organization, and its limits."""
    members = parse_body(body, _ORG)
    quota = members.get("quota")
    limits = {} if quota is None else _QUOTA.members(quota, "quota")
    storage, vaults, writes, reads = (
        number(limits, name, "quota") or 0
        for name in ("maxStorageBytes", "maxVaults", "maxWriteOpsPerSec", "maxReadOpsPerSec")
    )
    return OrgDraft(text(members, "name", "body"), check_quota(storage, vaults, writes, reads))


def parse_org_change(body: bytes) -> OrgSettings:
    """The settings of an organization to be changed."""
    members = parse_body(body, _ORG_CHANGE)
    settings = OrgSettings(
        number(members, "evictionInterval", "body"),
        number(members, "ttlSeconds", "body"),
        flag(members, "fence", "body"),
        _status(members, ORG_STATUS_NAMES, ORG_STATUSES),
    )
    if settings == OrgSettings():
        raise _nothing(_ORG_CHANGE)
    return settings


def parse_vault(body: bytes) -> int:
    """How many bodies a new vault keeps; 0 is all."""
    members = parse_body(body, _VAULT)
    policy = members.get("retentionPolicy")
    path = "retentionPolicy"
    if policy is None:
        return 0
    members = _RETENTION.members(policy, path)
    mode = choice(members, "mode", path, RETENTION_MODES) or 0
    blocks = number(members, "retentionBlocks", path) or 0
    return retained(mode, blocks)


def retained(mode: int, blocks: int) -> int:
    """The number of bodies that a retention policy keeps; 0 is all."""
    path = "retentionPolicy.retentionBlocks"
    if mode != RETENTION_MODES["BLOCK_RETENTION_MODE_COMPACTED"]:
        if blocks:
            raise invalid(f"{path} is for BLOCK_RETENTION_MODE_COMPACTED only.", path)
        return 0
    if not blocks:
        raise invalid(f"{path} must be at least 1.", path)
    return blocks


def parse_vault_change(body: bytes) -> Status:
    """The new status of a vault."""
    status = _status(parse_body(body, _VAULT_CHANGE), VAULT_STATUS_NAMES, VAULT_STATUSES)
    if status is None:
        raise _nothing(_VAULT_CHANGE)
    return status


def _status(members: Mapping[str, Any], names: Mapping[str, int], statuses: tuple[Status, ...]) -> Status | None:
    found = choice(members, "status", "body", names)
    if found == 0:
        raise invalid(f"{inside('body', 'status')} must say which.", "status")
    return None if found is None else statuses[found - 1]


def _nothing(shape: Shape) -> RefusedLedger:
    return invalid(f"There is nothing to change: send one of {', '.join(sorted(shape.names))}.", "body")

"""Parsers of request bodies: writes, batches, batch reads, and the requests of administrators."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields
from semel.kernel.json.text import JsonError
from semel.kernel.keys import InvalidKeyError, parse_idempotency_key, unwrap
from semel.surfaces.ledger.commands import OrgQuota, OrgSettings, invalid
from semel.surfaces.ledger.limits import MAX_BATCH_KEYS, MAX_BULK, MAX_BULK_OPERATIONS
from semel.surfaces.ledger.model import ORG_STATUSES, VAULT_STATUSES, LedgerStatus, Operation
from semel.surfaces.ledger.validation import check_quota
from semel.surfaces.ledger.wire.members import (
    CONSISTENCIES,
    ORG_STATUS_NAMES,
    RETENTION_MODES,
    VAULT_STATUS_NAMES,
    LedgerMembers,
    ObjectMembers,
    checked_text,
    inside,
    not_json,
    parse_body,
    small,
    unbase64,
)
from semel.surfaces.ledger.wire.operations import parse_operations

PIECES_EACH = 64
"""Limit of strings, brackets and commas for each operation, including its own group and null members."""
_KEY_BYTES = 16
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEADER = "Idempotency-Key"

_WRITE = ObjectMembers("clientId", "sequence", "idempotencyKey", "operations", "includeTxProof")
_BATCH = ObjectMembers("clientId", "sequence", "idempotencyKey", "operations", "includeTxProofs")
_BULK = ObjectMembers("transactions")
_GROUP = ObjectMembers("operations")
_CLIENT = ObjectMembers("id")
_BATCH_READ = ObjectMembers("keys", "consistency")
_ORG = ObjectMembers("name", "shardId", "quota")
_QUOTA = ObjectMembers("maxStorageBytes", "maxVaults", "maxWriteOpsPerSec", "maxReadOpsPerSec")
_ORG_CHANGE = ObjectMembers("evictionInterval", "ttlSeconds", "fence", "status")
_VAULT = ObjectMembers("retentionPolicy", "replicationFactor", "initialNodes")
"""The members of a new vault. Those that choose shards and nodes are ignored: the store places the data."""
_RETENTION = ObjectMembers("mode", "retentionBlocks")
_VAULT_CHANGE = ObjectMembers("status")


class WriteDraft(NamedTuple):
    """A transaction to commit, as parsed."""

    client: str
    sequence: int | None
    key: bytes
    operations: tuple[Operation, ...]
    wants_proof: bool


def parse_write(body: bytes, fields: HeaderFields, max_operations: int) -> WriteDraft:
    """Parse a write; its key may be in the header instead. Operations are counted before they are parsed."""
    members = parse_body(body, _WRITE, PIECES_EACH * (1 + max_operations))
    values = members.items("operations", partial(check_count, most=max_operations))
    try:
        operations = parse_operations(values, "operations")
    except JsonError as error:
        raise not_json(error) from None
    return _draft(members, fields, operations, "includeTxProof")


def parse_bulk(body: bytes, max_operations: int) -> list[WriteDraft | Refused]:
    """Parse many transactions, each with its own identity. One that is invalid has a refusal in its place."""
    members = parse_body(body, _BULK, PIECES_EACH * (1 + MAX_BULK_OPERATIONS))
    found: list[WriteDraft | Refused] = []
    count = 0
    try:
        for place, value in enumerate(members.items("transactions", _check_bulk)):
            one = _bulk_draft(small(value), f"transactions[{place}]", max_operations)
            count += len(one.operations) if isinstance(one, WriteDraft) else 1
            if count > MAX_BULK_OPERATIONS:
                message = f"All transactions of one request may have {MAX_BULK_OPERATIONS} operations together."
                raise invalid(message, "transactions")
            found.append(one)
    except JsonError as error:
        raise not_json(error) from None
    _check_bulk(len(found) or MAX_BULK + 1)
    return found


def _bulk_draft(value: object, path: str, max_operations: int) -> WriteDraft | Refused:
    try:
        members = _WRITE.members(value, path)
        values = members.items("operations", partial(check_count, most=max_operations))
        operations = parse_operations(values, members.path("operations"))
        return _draft(members, HeaderFields([]), operations, "includeTxProof")
    except Refused as refused:
        return refused


def _check_bulk(count: int) -> None:
    if count > MAX_BULK:
        raise invalid(f"A request has 1 to {MAX_BULK} transactions.", "transactions")


def parse_batch(body: bytes, fields: HeaderFields, max_operations: int) -> WriteDraft:
    """Parse a write whose operations come in groups; the limit of operations is also the limit of groups."""
    members = parse_body(body, _BATCH, PIECES_EACH * (1 + max_operations))
    groups = members.items("operations", partial(check_count, most=max_operations))
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
    values = members.items("operations", lambda count: check_count(before + count, most))
    operations += parse_operations(values, f"{path}.operations")


def check_count(count: int, most: int) -> None:
    """Refuse more operations, or groups of operations, than a transaction may have."""
    if count > most:
        raise invalid(f"A transaction has 1 to {most} operations.", "operations")


def _draft(members: LedgerMembers, fields: HeaderFields, operations: list[Operation], proof: str) -> WriteDraft:
    return WriteDraft(
        _client(members),
        members.number("sequence"),
        _key(members, fields),
        tuple(operations),
        members.flag(proof) or False,
    )


def _client(members: LedgerMembers) -> str:
    """A client id, as a string or as the message of gRPC."""
    value = members.values.get("clientId")
    if isinstance(value, dict):
        return _CLIENT.members(value, "clientId").text("id")
    return members.text("clientId")


def _key(members: LedgerMembers, fields: HeaderFields) -> bytes:
    given = _write_key(members.text("idempotencyKey"), "idempotencyKey")
    header = _header_key(fields)
    if header is None or header == given:
        return given
    if given:
        raise invalid(f"The {_HEADER} header and idempotencyKey name different keys.", "idempotencyKey")
    return header


def _header_key(fields: HeaderFields) -> bytes | None:
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
    """The key of a write: sixteen bytes in base64, or a UUID; empty without a key."""
    if _UUID.fullmatch(given):
        return bytes.fromhex(given.replace("-", ""))
    key = unbase64(given)
    if key is None or len(key) not in (0, _KEY_BYTES):
        raise invalid(f"{path} must be {_KEY_BYTES} bytes in base64, or a UUID.", path)
    return key


def creation_key(fields: HeaderFields) -> bytes:
    """The idempotency key of a creation: any text, as on the other surfaces; empty without a key."""
    try:
        return parse_idempotency_key(fields.all(b"idempotency-key")) or b""
    except InvalidKeyError as error:
        raise invalid(str(error), _HEADER) from None


def parse_batch_read(body: bytes) -> list[bytes]:
    """Parse the keys of a batch of reads."""
    members = parse_body(body, _BATCH_READ, PIECES_EACH * (1 + MAX_BATCH_KEYS))
    members.choice("consistency", CONSISTENCIES)
    keys = members.items("keys", _check_keys)
    try:
        return [checked_text(small(key), f"keys[{place}]").encode() for place, key in enumerate(keys)]
    except JsonError as error:
        raise not_json(error) from None


def _check_keys(count: int) -> None:
    if count > MAX_BATCH_KEYS:
        raise invalid(f"keys may have at most {MAX_BATCH_KEYS} keys, and has {count}.", "keys")


class OrgDraft(NamedTuple):
    """An organization to create, as parsed."""

    name: str
    quota: OrgQuota


def parse_org(body: bytes) -> OrgDraft:
    """Parse the name and the limits of a new organization."""
    members = parse_body(body, _ORG)
    quota = members.values.get("quota")
    limits = _QUOTA.members({} if quota is None else quota, "quota")
    storage, vaults, writes, reads = (
        limits.number(name) or 0 for name in ("maxStorageBytes", "maxVaults", "maxWriteOpsPerSec", "maxReadOpsPerSec")
    )
    return OrgDraft(members.text("name"), check_quota(storage, vaults, writes, reads))


def parse_org_change(body: bytes) -> OrgSettings:
    """Parse the changes of the settings of an organization."""
    members = parse_body(body, _ORG_CHANGE)
    settings = OrgSettings(
        members.number("evictionInterval"),
        members.number("ttlSeconds"),
        members.flag("fence"),
        _status(members, ORG_STATUS_NAMES, ORG_STATUSES),
    )
    if settings == OrgSettings():
        raise _nothing(_ORG_CHANGE)
    return settings


def parse_vault(body: bytes) -> int:
    """Parse the number of block bodies that a new vault keeps; 0 is all."""
    members = parse_body(body, _VAULT)
    policy = members.values.get("retentionPolicy")
    path = "retentionPolicy"
    if policy is None:
        return 0
    members = _RETENTION.members(policy, path)
    mode = members.choice("mode", RETENTION_MODES) or 0
    blocks = members.number("retentionBlocks") or 0
    return retained(mode, blocks)


def retained(mode: int, blocks: int) -> int:
    """The number of block bodies that a retention policy keeps; 0 is all."""
    path = "retentionPolicy.retentionBlocks"
    if mode != RETENTION_MODES["BLOCK_RETENTION_MODE_COMPACTED"]:
        if blocks:
            raise invalid(f"{path} is for BLOCK_RETENTION_MODE_COMPACTED only.", path)
        return 0
    if not blocks:
        raise invalid(f"{path} must be at least 1.", path)
    return blocks


def parse_vault_change(body: bytes) -> LedgerStatus:
    """Parse the new status of a vault."""
    status = _status(parse_body(body, _VAULT_CHANGE), VAULT_STATUS_NAMES, VAULT_STATUSES)
    if status is None:
        raise _nothing(_VAULT_CHANGE)
    return status


def _status(
    members: LedgerMembers, names: Mapping[str, int], statuses: tuple[LedgerStatus, ...]
) -> LedgerStatus | None:
    found = members.choice("status", names)
    if found == 0:
        raise invalid(f"{inside('body', 'status')} must say which.", "status")
    return None if found is None else statuses[found - 1]


def _nothing(shape: ObjectMembers) -> Refused:
    return invalid(f"There is nothing to change: send one of {', '.join(sorted(shape.names))}.", "body")

"""Validation of requests before any state is read: transactions, names, settings, quotas, retention.

A request that breaks a limit is refused with the name of its field. A valid transaction becomes a command.
"""

from __future__ import annotations

import re

from semel.kernel.errors import Refused
from semel.surfaces.ledger.commands import OrgQuota, OrgSettings, PreparedWrite, WriteCommand, invalid
from semel.surfaces.ledger.limits import (
    MAX_CLIENT_CHARACTERS,
    MAX_INTERVAL,
    MAX_NAME_CHARACTERS,
    MAX_SEQUENCE,
    MAX_TTL_SECONDS,
    LedgerLimits,
)
from semel.surfaces.ledger.model import (
    SYSTEM,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    ExpireEntity,
    LedgerPlace,
    Operation,
    SetEntity,
)
from semel.surfaces.ledger.rules.chain import encode_operations, request_hash
from semel.surfaces.ledger.rules.idempotency import KEY_BYTES

NO_KEY = bytes(KEY_BYTES)
"""Sixteen zero bytes count as no key."""
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")


def prepare(
    limits: LedgerLimits,
    place: LedgerPlace,
    client: bytes,
    sequence: int | None,
    key: bytes,
    operations: tuple[Operation, ...],
) -> PreparedWrite:
    """Validate and encode a transaction; safe in any thread."""
    check_write(limits, place, client, sequence, key, operations)
    encoded = encode_operations(operations)
    named = b"" if key == NO_KEY else key
    return PreparedWrite(place, client, sequence, named, operations, encoded, request_hash(encoded))


def write_command(
    limits: LedgerLimits,
    prepared: PreparedWrite,
    actor: bytes,
    leader: bytes,
    chance: bytes,
    *,
    with_proof: bool = False,
) -> WriteCommand:
    """The command for a prepared transaction of a caller."""
    check_actor(limits, actor, prepared.operations)
    return WriteCommand(prepared, actor, leader, chance, with_proof)


def check_write(
    limits: LedgerLimits,
    place: LedgerPlace,
    client: bytes,
    sequence: int | None,
    key: bytes,
    operations: tuple[Operation, ...],
) -> None:
    """Refuse a transaction that is invalid in any state."""
    check_client(client)
    if sequence is not None and not 0 < sequence <= MAX_SEQUENCE:
        raise invalid("A sequence is a number from 1 to 2^64-1.", "sequence")
    if len(key) not in (0, KEY_BYTES):
        raise invalid("An idempotency key has sixteen bytes.", "idempotency_key")
    if sequence is None and key in (b"", NO_KEY):
        raise invalid("Send a sequence, an idempotency key, or both.", "sequence")
    if not 1 <= len(operations) <= limits.max_operations:
        raise invalid(f"A transaction has 1 to {limits.max_operations} operations.", "operations")
    size = 0
    for operation in operations:
        size += _check_operation(limits, place, operation)
    if size > limits.max_payload_bytes:
        raise invalid(f"Keys and values may have {limits.max_payload_bytes} bytes together.", "operations")


def check_client(client: bytes) -> None:
    """Refuse a client id that has an invalid length or is not UTF-8."""
    if not 1 <= len(_text(client, "client_id")) <= MAX_CLIENT_CHARACTERS:
        raise invalid(f"A client id has 1 to {MAX_CLIENT_CHARACTERS} characters.", "client_id")


def check_actor(limits: LedgerLimits, actor: bytes, operations: tuple[Operation, ...]) -> None:
    """Refuse an actor that is too long, and expirations by anyone but the system."""
    if len(_text(actor, "actor")) > limits.max_actor_characters:
        raise invalid(f"The caller's name may have {limits.max_actor_characters} characters.", "actor")
    if not actor.startswith(SYSTEM) and ExpireEntity in map(type, operations):
        raise Refused("ledger:permission_denied", "Only the system itself expires entities: delete them instead.")


def check_key(limits: LedgerLimits, key: bytes) -> None:
    """Refuse an invalid key of an entity."""
    text = _text(key, "key")
    if not 1 <= len(key) <= limits.max_key_bytes:
        raise invalid(f"A key has 1 to {limits.max_key_bytes} bytes.", "key")
    if not text.isprintable() and CONTROLS.search(text):
        raise invalid("A key has no control characters.", "key")


def _check_operation(limits: LedgerLimits, place: LedgerPlace, operation: Operation) -> int:
    """Refuse an invalid operation; returns its bytes of key and value."""
    if isinstance(operation, CreateRelationship | DeleteRelationship):
        if place.vault == 0:
            raise invalid("Relationships stand in a vault: name one.", "vault")
        return check_relationship(limits, *operation)
    check_key(limits, operation.key)
    size = len(operation.key)
    if isinstance(operation, SetEntity):
        size += _check_value(limits, operation)
    elif isinstance(operation, ExpireEntity):
        _check_number(operation.expired_at, "expired_at")
    else:
        assert isinstance(operation, DeleteEntity)
    return size


def _check_value(limits: LedgerLimits, operation: SetEntity) -> int:
    _check_number(operation.expires_at, "expires_at")
    condition = operation.condition
    size = len(operation.value) + (len(condition.value) if condition else 0)
    if len(operation.value) > limits.max_value_bytes:
        raise invalid(f"A value may have {limits.max_value_bytes} bytes.", "value")
    if condition is not None:
        _check_number(condition.version, "version")
        if len(condition.value) > limits.max_value_bytes:
            raise invalid(f"A value may have {limits.max_value_bytes} bytes.", "value_equals")
    return size


def check_relationship(limits: LedgerLimits, resource: bytes, relation: bytes, subject: bytes) -> int:
    """Refuse an invalid relationship; returns its size in bytes."""
    _check_name(resource, "resource", limits.max_resource_characters)
    _check_name(relation, "relation", limits.max_relation_characters)
    _check_name(subject, "subject", limits.max_resource_characters)
    _check_typed(resource, "resource")
    owner, hash_sign, role = subject.partition(b"#")
    _check_typed(owner, "subject")
    if hash_sign and (not role or b"#" in role):
        raise invalid("A subject is type:id or type:id#relation.", "subject")
    for name, part in (("resource", resource), ("relation", relation)):
        if b"#" in part:
            raise invalid(f"A {name} has no # in it.", name)
    return len(resource) + len(relation) + len(subject)


def _check_name(value: bytes, field: str, most: int) -> None:
    text = _text(value, field)
    if not 1 <= len(text) <= most:
        raise invalid(f"A {field} has 1 to {most} characters.", field)
    if CONTROLS.search(text):
        raise invalid(f"A {field} has no control characters.", field)


def _check_typed(value: bytes, field: str) -> None:
    kind, colon, name = value.partition(b":")
    if not (kind and colon and name):
        raise invalid(f"A {field} is type:id.", field)


def _check_number(number: int, field: str) -> None:
    if not 0 <= number <= MAX_SEQUENCE:
        raise invalid(f"{field} is a number from 0 to 2^64-1.", field)


def _text(value: bytes, field: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise invalid(f"The {field} is not UTF-8.", field) from None


MAX_RETAINED = 2**62
"""Limit of retained block bodies: a larger number could not be subtracted from a height."""


MAX_QUOTA_BYTES = 2**62
MAX_QUOTA = 2**32 - 1
"""Limit of vaults, and of transactions a second."""


def check_name(name: bytes) -> None:
    """Refuse an invalid name of an organization."""
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise invalid("The name is not UTF-8.", "name") from None
    if not 1 <= len(text) <= MAX_NAME_CHARACTERS:
        raise invalid(f"A name has 1 to {MAX_NAME_CHARACTERS} characters.", "name")
    if CONTROLS.search(text):
        raise invalid("A name has no control characters.", "name")


def check_settings(settings: OrgSettings) -> None:
    """Refuse invalid changes of settings of an organization."""
    for value, field, most in (
        (settings.eviction_interval, "eviction_interval", MAX_INTERVAL),
        (settings.ttl_seconds, "ttl_seconds", MAX_TTL_SECONDS),
    ):
        if value is not None and not 1 <= value <= most:
            raise invalid(f"{field} is a number from 1 to {most}.", field)


def check_quota(
    max_storage_bytes: int, max_vaults: int, max_write_ops_per_sec: int, max_read_ops_per_sec: int
) -> OrgQuota:
    """Refuse invalid limits of a new organization, and limits that are not enforced here."""
    quota = OrgQuota(max_storage_bytes, max_vaults, max_write_ops_per_sec)
    for (field, value), most in zip(quota._asdict().items(), (MAX_QUOTA_BYTES, MAX_QUOTA, MAX_QUOTA), strict=True):
        if not 0 <= value <= most:
            raise invalid(f"{field} is a number from 0, which is no limit, to {most}.", f"quota.{field}")
    if max_read_ops_per_sec:
        message = "Reads are not counted here: leave max_read_ops_per_sec out of the quota."
        raise invalid(message, "quota.max_read_ops_per_sec")
    return quota


def check_retention(retain: int) -> None:
    """Refuse an invalid number of block bodies to keep; 0 is all."""
    if not 0 <= retain <= MAX_RETAINED:
        raise invalid(f"retention_blocks is a number from 1 to {MAX_RETAINED}.", "retention_blocks")

"""Bodies of requests: what each is understood as, and what of each is refused, by its member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from semel.kernel.header_fields import HeaderFields
from semel.surfaces.ledger.commands import NO_QUOTA, OrgQuota, OrgSettings
from semel.surfaces.ledger.model import (
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    ExpireEntity,
    LedgerStatus,
    Operation,
    SetCondition,
    SetEntity,
)
from semel.surfaces.ledger.wire import members
from semel.surfaces.ledger.wire.bodies import (
    OrgDraft,
    WriteDraft,
    creation_key,
    parse_batch,
    parse_batch_read,
    parse_org,
    parse_org_change,
    parse_vault,
    parse_vault_change,
    parse_write,
)
from semel.surfaces.ledger.wire.operations import operation_json, parse_operations
from tests.ledger.wire.refusals import KEY, KEY_TEXT, KEY_UUID, NO_FIELDS, keyed, raw, refused

MOST = 1_000
Parse = Callable[[bytes, HeaderFields, int], WriteDraft]

SET = {"setEntity": {"key": "k", "value": "eA=="}}
IS_SET = SetEntity(b"k", b"x")

OPERATIONS: dict[str, tuple[Any, Operation]] = {
    "set": (SET, IS_SET),
    "set nothing": ({"setEntity": {"key": "k"}}, SetEntity(b"k", b"")),
    "set until": ({"setEntity": {"key": "k", "value": "eA", "expiresAt": "9"}}, SetEntity(b"k", b"x", 9)),
    "set in snakes": ({"set_entity": {"key": "k", "value": "eA", "expires_at": 9}}, SetEntity(b"k", b"x", 9)),
    "set beside null": ({"setEntity": {"key": "k", "value": None}, "deleteEntity": None}, SetEntity(b"k", b"")),
    "set in umlauts": ({"setEntity": {"key": "\u00fc", "value": "_-8"}}, SetEntity("\u00fc".encode(), b"\xff\xef")),
    "delete": ({"deleteEntity": {"key": "k"}}, DeleteEntity(b"k")),
    "delete nothing": ({"deleteEntity": {}}, DeleteEntity(b"")),
    "expire": ({"expireEntity": {"key": "k", "expiredAt": "9"}}, ExpireEntity(b"k", 9)),
    "expire at once": ({"expire_entity": {"key": "k"}}, ExpireEntity(b"k", 0)),
    "relate": (
        {"createRelationship": {"resource": "doc:1", "relation": "viewer", "subject": "user:1"}},
        CreateRelationship(b"doc:1", b"viewer", b"user:1"),
    ),
    "unrelate": (
        {"delete_relationship": {"resource": "doc:1", "relation": "viewer", "subject": "user:1#member"}},
        DeleteRelationship(b"doc:1", b"viewer", b"user:1#member"),
    ),
}

CONDITIONS: dict[str, tuple[Any, SetCondition | None]] = {
    "none": (None, None),
    "empty": ({}, None),
    "null": ({"notExists": None}, None),
    "not exists": ({"notExists": True}, SetCondition(ConditionKind.NOT_EXISTS)),
    "not not exists": ({"not_exists": False}, SetCondition(ConditionKind.MUST_EXIST)),
    "must exist": ({"mustExists": True}, SetCondition(ConditionKind.MUST_EXIST)),
    "must not exist": ({"must_exists": False}, SetCondition(ConditionKind.NOT_EXISTS)),
    "version": ({"version": "7"}, SetCondition(ConditionKind.VERSION, version=7)),
    "version 0": ({"version": 0}, SetCondition(ConditionKind.VERSION)),
    "value": ({"valueEquals": "eA=="}, SetCondition(ConditionKind.VALUE, value=b"x")),
    "no value": ({"value_equals": ""}, SetCondition(ConditionKind.VALUE)),
    "beside null": ({"version": 7, "notExists": None}, SetCondition(ConditionKind.VERSION, version=7)),
}

BAD_OPERATIONS: dict[str, tuple[Any, str]] = {
    "no object": ("x", "ops[0]"),
    "null": (None, "ops[0]"),
    "none": ({}, "ops[0]"),
    "only null": ({"setEntity": None}, "ops[0]"),
    "two": ({"deleteEntity": {"key": "a"}, "setEntity": {"key": "a"}}, "ops[0]"),
    "unknown": ({"renameEntity": {}}, "ops[0].renameEntity"),
    "inner text": ({"setEntity": "k"}, "ops[0].setEntity"),
    "inner unknown": ({"setEntity": {"key": "a", "ttl": 1}}, "ops[0].setEntity.ttl"),
    "key": ({"setEntity": {"key": 7}}, "ops[0].setEntity.key"),
    "value": ({"setEntity": {"key": "k", "value": "*"}}, "ops[0].setEntity.value"),
    "expires": ({"setEntity": {"key": "k", "expiresAt": -1}}, "ops[0].setEntity.expiresAt"),
    "condition": ({"setEntity": {"key": "k", "condition": "x"}}, "ops[0].setEntity.condition"),
    "condition unknown": ({"setEntity": {"condition": {"exists": True}}}, "ops[0].setEntity.condition.exists"),
    "two conditions": ({"setEntity": {"condition": {"version": 1, "mustExists": True}}}, "ops[0].setEntity.condition"),
    "flag": ({"setEntity": {"condition": {"notExists": 1}}}, "ops[0].setEntity.condition.notExists"),
    "must flag": ({"setEntity": {"condition": {"mustExists": ""}}}, "ops[0].setEntity.condition.mustExists"),
    "version": ({"setEntity": {"condition": {"version": "x"}}}, "ops[0].setEntity.condition.version"),
    "equals": ({"setEntity": {"condition": {"valueEquals": 7}}}, "ops[0].setEntity.condition.valueEquals"),
    "delete": ({"deleteEntity": {"key": "k", "value": ""}}, "ops[0].deleteEntity.value"),
    "expire": ({"expireEntity": {"key": "k", "expiredAt": "x"}}, "ops[0].expireEntity.expiredAt"),
    "relation": ({"createRelationship": {"resource": "a:1", "relation": 7}}, "ops[0].createRelationship.relation"),
    "unrelate": ({"deleteRelationship": []}, "ops[0].deleteRelationship"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_understood_and_told_again(name: str) -> None:
    given, wanted = OPERATIONS[name]
    assert parse_operations([given], "ops") == [wanted]
    assert parse_operations([operation_json(wanted)], "ops") == [wanted]


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_is_understood_and_told_again(name: str) -> None:
    given, wanted = CONDITIONS[name]
    operation = SetEntity(b"k", b"x", 0, wanted)
    assert parse_operations([{"setEntity": {"key": "k", "value": "eA==", "condition": given}}], "ops") == [operation]
    assert parse_operations([operation_json(operation)], "ops") == [operation]


@pytest.mark.parametrize("name", BAD_OPERATIONS)
def test_an_operation_that_is_none_is_refused(name: str) -> None:
    given, field = BAD_OPERATIONS[name]
    with refused(field):
        parse_operations([given], "ops")
    with refused(field.replace("ops[0]", "ops[1]")):
        parse_operations([SET, given], "ops")


# -- writes and batches -----------------------------------------------------------------------------------------------

WRITE = {"clientId": "app", "sequence": "1", "operations": [SET]}
DRAFT = WriteDraft("app", 1, b"", (IS_SET,), False)


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, DRAFT),
        ({"clientId": {"id": "app"}}, DRAFT),
        ({"sequence": 1}, DRAFT),
        ({"sequence": None}, DRAFT._replace(sequence=None)),
        ({"sequence": 0}, DRAFT._replace(sequence=0)),
        ({"idempotencyKey": KEY_TEXT}, DRAFT._replace(key=KEY)),
        ({"idempotencyKey": KEY_TEXT.rstrip("=")}, DRAFT._replace(key=KEY)),
        ({"idempotency_key": KEY_UUID}, DRAFT._replace(key=KEY)),
        ({"idempotencyKey": KEY_UUID.upper()}, DRAFT._replace(key=KEY)),
        ({"idempotencyKey": ""}, DRAFT),
        ({"idempotencyKey": None}, DRAFT),
        ({"includeTxProof": True}, DRAFT._replace(wants_proof=True)),
        ({"includeTxProof": False}, DRAFT),
        ({"operations": []}, DRAFT._replace(operations=())),
        ({"operations": None}, DRAFT._replace(operations=())),
        ({"clientId": None}, DRAFT._replace(client="")),
    ],
    ids=lambda value: ascii(value) if isinstance(value, dict) else "",
)
def test_a_write_is_understood(changed: dict[str, Any], wanted: WriteDraft) -> None:
    assert parse_write(raw(WRITE | changed), NO_FIELDS, MOST) == wanted


def test_a_batch_is_understood() -> None:
    groups = [{"operations": [SET, SET]}, {"operations": []}, {}, {"operations": [SET]}]
    batch = parse_batch(raw(WRITE | {"operations": groups, "includeTxProofs": True}), NO_FIELDS, MOST)
    assert batch == DRAFT._replace(operations=(IS_SET,) * 3, wants_proof=True)


BAD_WRITES: dict[str, tuple[Any, str]] = {
    "unknown": ({"actor": "system:gc"}, "actor"),
    "place": ({"organization": {"slug": "1"}}, "organization"),
    "client": ({"clientId": 7}, "clientId"),
    "client unknown": ({"clientId": {"id": "app", "name": "x"}}, "clientId.name"),
    "client inner": ({"clientId": {"id": 7}}, "clientId.id"),
    "sequence": ({"sequence": "x"}, "sequence"),
    "negative": ({"sequence": -1}, "sequence"),
    "too large": ({"sequence": 2**64}, "sequence"),
    "key": ({"idempotencyKey": 7}, "idempotencyKey"),
    "short key": ({"idempotencyKey": "AAECAw=="}, "idempotencyKey"),
    "long key": ({"idempotencyKey": KEY_TEXT[:-2] + "AA=="}, "idempotencyKey"),
    "hex key": ({"idempotencyKey": KEY_UUID.replace("-", "")}, "idempotencyKey"),
    "odd dashes": ({"idempotencyKey": "0001-0203040506070809-0a0b0c0d0e0f"}, "idempotencyKey"),
    "text key": ({"idempotencyKey": "my key"}, "idempotencyKey"),
    "operations": ({"operations": SET}, "operations"),
    "operation": ({"operations": [SET, {}]}, "operations[1]"),
    "proof": ({"includeTxProof": "true"}, "includeTxProof"),
    "proofs": ({"includeTxProofs": True}, "includeTxProofs"),
}


@pytest.mark.parametrize("name", BAD_WRITES)
def test_a_write_that_is_none_is_refused(name: str) -> None:
    changed, field = BAD_WRITES[name]
    with refused(field):
        parse_write(raw(WRITE | changed), NO_FIELDS, MOST)


@pytest.mark.parametrize(
    ("operations", "field"),
    [
        ([SET], "operations[0].setEntity"),
        ([{"operations": [SET]}, {"operations": [SET, {}]}], "operations[1].operations[1]"),
        ([{"operations": SET}], "operations[0].operations"),
        ([{"sequence": 1}], "operations[0].sequence"),
        (["x"], "operations[0]"),
    ],
    ids=["no groups", "operation", "no list", "sequence", "text"],
)
def test_a_batch_that_is_none_is_refused(operations: Any, field: str) -> None:
    with refused(field):
        parse_batch(raw(WRITE | {"operations": operations}), NO_FIELDS, MOST)


def test_a_batch_knows_its_own_flag_only() -> None:
    with refused("includeTxProof"):
        parse_batch(raw(WRITE | {"operations": [], "includeTxProof": True}), NO_FIELDS, MOST)


@pytest.mark.parametrize(
    ("parse", "operations"),
    [
        (parse_write, [{}] * 4),
        (parse_batch, [{}] * 4),
        (parse_batch, [{"operations": [{}] * 4}]),
        (parse_batch, [{"operations": [SET] * 2}, {"operations": [SET, {}]}]),
    ],
    ids=["write", "groups", "group", "together"],
)
def test_operations_are_counted_before_they_are_looked_at(parse: Parse, operations: Any) -> None:
    with refused("operations"):
        parse(raw(WRITE | {"operations": operations}), NO_FIELDS, 3)


@pytest.mark.parametrize("parse", [parse_write, parse_batch], ids=["write", "batch"])
@pytest.mark.parametrize("value", [b"{}", b"0", b'""', b"[]", b"[", b'"'], ids=ascii)
def test_a_body_of_very_many_values_is_not_parsed(monkeypatch: pytest.MonkeyPatch, parse: Parse, value: bytes) -> None:
    monkeypatch.setattr(members, "parse", lambda body: pytest.fail("it was parsed"))
    for body in (b'{"operations":[%s]}' % b",".join([value] * 70_000), b"{%s}" % b",".join([b'"a":' + value] * 70_000)):
        with refused("body"):
            parse(body, NO_FIELDS, MOST)


def test_the_largest_body_that_is_right_is_parsed() -> None:
    """As many operations as there may be, each in a group of its own, with every member that it can have."""
    nothing = dict.fromkeys(("createRelationship", "deleteRelationship", "deleteEntity", "expireEntity"))
    condition = dict.fromkeys(("notExists", "valueEquals", "mustExists")) | {"version": "1"}
    full = nothing | {"setEntity": {"key": ',[{"', "value": "", "expiresAt": "5", "condition": condition}}
    wanted = SetEntity(b',[{"', b"", 5, SetCondition(ConditionKind.VERSION, version=1))
    batch = parse_batch(raw(WRITE | {"operations": [{"operations": [full]}] * MOST}), NO_FIELDS, MOST)
    assert batch.operations == (wanted,) * MOST
    assert parse_write(raw(WRITE | {"operations": [full] * MOST}), NO_FIELDS, MOST).operations == (wanted,) * MOST


@pytest.mark.parametrize(
    "text", ["," * 100_000, "[" * 100_000, '"' * 100_000, '\\"' * 100_000], ids=["comma", "bracket", "quote", "both"]
)
def test_what_stands_in_strings_is_not_counted(text: str) -> None:
    draft = parse_write(raw(WRITE | {"operations": [{"deleteEntity": {"key": text}}]}), NO_FIELDS, MOST)
    assert draft.operations == (DeleteEntity(text.encode()),)


# -- keys in the header -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", [KEY_TEXT, KEY_UUID, f'"{KEY_UUID}"', f" {KEY_TEXT}\t", f'"{KEY_TEXT}"'])
@pytest.mark.parametrize("member", [None, "", KEY_TEXT, KEY_UUID])
def test_the_header_may_replace_the_member(header: str, member: str | None) -> None:
    assert parse_write(raw(WRITE | {"idempotencyKey": member}), keyed(header), MOST).key == KEY


@pytest.mark.parametrize(
    ("headers", "member", "field"),
    [
        ([KEY_TEXT], "A" * 22, "idempotencyKey"),
        ([KEY_TEXT, KEY_TEXT], None, "Idempotency-Key"),
        ([""], None, "Idempotency-Key"),
        (['""'], None, "Idempotency-Key"),
        (["my key"], None, "Idempotency-Key"),
        ([f'"{KEY_UUID}'], None, "Idempotency-Key"),
        (["\u00e9"], None, "Idempotency-Key"),
        ([KEY_TEXT], "x", "idempotencyKey"),
    ],
    ids=["differ", "twice", "empty", "empty string", "text", "half quoted", "umlaut", "bad member"],
)
def test_a_header_that_is_doubtful_is_refused(headers: list[str], member: str | None, field: str) -> None:
    with refused(field):
        parse_write(raw(WRITE | {"idempotencyKey": member}), keyed(*headers), MOST)


def test_a_creation_takes_any_key() -> None:
    assert creation_key(NO_FIELDS) == b""
    assert creation_key(keyed("org 1")) == b"org 1"
    assert creation_key(keyed('"org 1"')) == b"org 1"
    for values in ([""], ["x" * 257], ["a", "b"], ["\u00e9"]):
        with refused("Idempotency-Key"):
            creation_key(keyed(*values))


# -- reads and orders -------------------------------------------------------------------------------------------------


def test_keys_to_read() -> None:
    assert parse_batch_read(raw({"keys": ["a", "\u00fc/"], "consistency": 2})) == [b"a", "\u00fc/".encode()]
    assert parse_batch_read(raw({})) == []
    assert len(parse_batch_read(raw({"keys": ["k"] * 1_000}))) == 1_000


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"keys": ["k"] * 1_001}, "keys"),
        ({"keys": "k"}, "keys"),
        ({"keys": ["k", 7]}, "keys[1]"),
        ({"keys": [None]}, "keys[0]"),
        ({"key": "k"}, "key"),
        ({"consistency": "eventual"}, "consistency"),
        ({"consistency": 3}, "consistency"),
    ],
    ids=["many", "text", "number", "null", "unknown", "consistency", "consistency 3"],
)
def test_keys_that_are_none_are_refused(body: Any, field: str) -> None:
    with refused(field):
        parse_batch_read(raw(body))


def test_bodies_about_few_things_have_few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "parse", lambda body: pytest.fail("it was parsed"))
    for parse in (parse_org, parse_org_change, parse_vault, parse_vault_change):
        with refused("body"):
            parse(b'{"name":[%s]}' % b",".join([b"0"] * 5_000))
    with refused("body"):
        parse_batch_read(b'{"keys":[%s]}' % b",".join([b'""'] * 70_000))


def test_orders() -> None:
    assert parse_org(raw({"name": "shop", "shard_id": {"id": 3}})) == OrgDraft("shop", NO_QUOTA)
    assert parse_org(b"") == OrgDraft("", NO_QUOTA)
    limits = {"maxStorageBytes": "9", "max_vaults": 8, "maxWriteOpsPerSec": 7, "maxReadOpsPerSec": 0}
    assert parse_org(raw({"name": "shop", "quota": limits})) == OrgDraft("shop", OrgQuota(9, 8, 7))
    assert parse_org(raw({"name": "shop", "quota": {}})) == parse_org(raw({"name": "shop", "quota": None}))
    wrong: list[tuple[Any, str]] = [
        ({"maxVaults": 2**32}, "quota.max_vaults"),
        ({"maxReadOpsPerSec": 1}, "quota.max_read_ops_per_sec"),
        ({"maxVaults": -1}, "quota.maxVaults"),
        ({"max": 1}, "quota.max"),
        (5, "quota"),
    ]
    for quota, field in wrong:
        with refused(field):
            parse_org(raw({"name": "shop", "quota": quota}))
    assert parse_org_change(raw({"ttlSeconds": "9"})) == OrgSettings(ttl_seconds=9)
    everything = {"eviction_interval": 7, "ttlSeconds": 9, "fence": False, "status": "ORGANIZATION_STATUS_SUSPENDED"}
    assert parse_org_change(raw(everything)) == OrgSettings(7, 9, False, LedgerStatus.SUSPENDED)
    assert parse_org_change(raw({"status": 5})) == OrgSettings(status=LedgerStatus.DELETED)
    assert parse_vault_change(raw({"status": "VAULT_STATUS_READ_ONLY"})) is LedgerStatus.READ_ONLY
    assert parse_vault_change(raw({"status": 3})) is LedgerStatus.DELETED


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (None, 0),
        ({}, 0),
        ({"mode": "BLOCK_RETENTION_MODE_FULL"}, 0),
        ({"mode": 0, "retentionBlocks": "0"}, 0),
        ({"mode": "BLOCK_RETENTION_MODE_COMPACTED", "retentionBlocks": "7"}, 7),
        ({"mode": 2, "retention_blocks": 1}, 1),
    ],
    ids=["absent", "empty", "full", "unspecified", "compacted", "numbers"],
)
def test_retention(policy: Any, wanted: int) -> None:
    assert parse_vault(raw({"retentionPolicy": policy})) == wanted
    assert parse_vault(raw({"retention_policy": policy, "replicationFactor": 3, "initialNodes": []})) == wanted


@pytest.mark.parametrize(
    ("parse", "body", "field"),
    [
        (parse_org, {"name": 7}, "name"),
        (parse_org, {"slug": "7001"}, "slug"),
        (parse_org_change, {}, "body"),
        (parse_org_change, {"name": "x"}, "name"),
        (parse_org_change, {"fence": "true"}, "fence"),
        (parse_org_change, {"ttlSeconds": "x"}, "ttlSeconds"),
        (parse_org_change, {"evictionInterval": -1}, "evictionInterval"),
        (parse_org_change, {"status": "VAULT_STATUS_READ_ONLY"}, "status"),
        (parse_org_change, {"status": "ORGANIZATION_STATUS_UNSPECIFIED"}, "status"),
        (parse_org_change, {"status": 6}, "status"),
        (parse_vault_change, {}, "body"),
        (parse_vault_change, {"status": "ORGANIZATION_STATUS_ACTIVE"}, "status"),
        (parse_vault_change, {"status": 0}, "status"),
        (parse_vault, {"retentionPolicy": 7}, "retentionPolicy"),
        (parse_vault, {"retentionPolicy": {"mode": "FULL"}}, "retentionPolicy.mode"),
        (parse_vault, {"retentionPolicy": {"mode": 2}}, "retentionPolicy.retentionBlocks"),
        (parse_vault, {"retentionPolicy": {"mode": 1, "retentionBlocks": 7}}, "retentionPolicy.retentionBlocks"),
        (parse_vault, {"retentionPolicy": {"blocks": 7}}, "retentionPolicy.blocks"),
        (parse_vault, {"retain": 7}, "retain"),
    ],
    ids=lambda value: getattr(value, "__name__", None) or ascii(value),
)
def test_an_order_that_is_none_is_refused(parse: Any, body: Any, field: str) -> None:
    with refused(field):
        parse(raw(body))

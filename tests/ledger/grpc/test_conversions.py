"""Messages and values: what goes in comes out the same, and both wires tell the same of a value."""

from __future__ import annotations

import base64
from functools import partial
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from semel.kernel.errors import Refused
from semel.server.grpc import messages
from semel.server.grpc.metadata import GrpcError
from semel.surfaces.ledger.commands import Vault, WriteDeclined
from semel.surfaces.ledger.grpc import answers as outbound
from semel.surfaces.ledger.grpc import requests
from semel.surfaces.ledger.grpc.answers import block_parts, chain_parts
from semel.surfaces.ledger.model import Entity, LedgerPlace, LedgerStatus, Operation
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from semel.surfaces.ledger.reading import LedgerBlock
from semel.surfaces.ledger.wire import answers
from tests.ledger.grpc.samples import (
    COMMITTED,
    DECLINED,
    ENTITY,
    HEADER,
    LARGEST,
    LASTING,
    OPERATIONS,
    ORG,
    PLACE,
    RELATED,
    TRANSACTION,
    TX_PROOF,
    VAULT,
    state_proof,
)

MOST = 1_000


def told(message: Message) -> dict[str, Any]:
    """A message as proto3 JSON prints it, without empty lists and maps."""
    document: dict[str, Any] = without_empty(MessageToDict(message, always_print_fields_with_no_presence=True))
    return document


def without_empty(value: Any) -> Any:
    """Lists without items and maps without members go, messages without fields stay."""
    if isinstance(value, list):
        return [without_empty(member) for member in value]
    if not isinstance(value, dict):
        return value
    kept = {name: without_empty(member) for name, member in value.items()}
    return {name: member for name, member in kept.items() if member != [] and (member != {} or name != "details")}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_an_operation_comes_back(operation: Operation) -> None:
    message = pb.Operation.FromString(outbound.operation_pb(operation).SerializeToString())
    assert requests.operations([message]) == (operation,)


@pytest.mark.parametrize(
    ("condition", "same_as"),
    [
        (pb.SetCondition(not_exists=False), pb.SetCondition(must_exists=True)),
        (pb.SetCondition(must_exists=False), pb.SetCondition(not_exists=True)),
        (pb.SetCondition(), None),
    ],
    ids=["not-exists-false", "must-exists-false", "nothing"],
)
def test_a_false_condition_is_its_opposite(condition: pb.SetCondition, same_as: pb.SetCondition | None) -> None:
    one = pb.Operation(set_entity=pb.SetEntity(key="k", condition=condition))
    other = pb.Operation(set_entity=pb.SetEntity(key="k", condition=same_as))
    assert requests.operations([one]) == requests.operations([other])


def test_an_operation_with_nothing_in_it_is_refused() -> None:
    with pytest.raises(Refused, match=r"operations\[1\]"):
        requests.operations([pb.Operation(delete_entity=pb.DeleteEntity(key="k")), pb.Operation()])


def test_a_batch_is_flat() -> None:
    groups = [[OPERATIONS["set"], OPERATIONS["delete"]], [], [OPERATIONS["relate"]]]
    request = pb.BatchWriteRequest(
        organization=pb.OrganizationSlug(slug=1),
        client_id=pb.ClientId(id="app"),
        idempotency_key=b"k" * 16,
        operations=[pb.BatchWriteOperation(operations=map(outbound.operation_pb, group)) for group in groups],
        include_tx_proofs=True,
    )
    order = requests.parse_batch(request, MOST)
    assert order.draft.operations == tuple(operation for group in groups for operation in group)
    assert (order.place, order.draft.wants_proof, order.draft.sequence) == (LedgerPlace(1), True, None)


@pytest.mark.parametrize("sequence", [0, 1, LARGEST])
def test_a_sequence_is_told_from_none(sequence: int) -> None:
    request = pb.WriteRequest(organization=pb.OrganizationSlug(slug=1), vault=pb.VaultSlug(slug=2), sequence=sequence)
    order = requests.parse_write(request, MOST)
    assert (order.place, order.draft.sequence) == (LedgerPlace(1, 2), sequence)
    request.ClearField("sequence")
    assert requests.parse_write(request, MOST).draft.sequence is None


def test_a_request_names_its_organization() -> None:
    with pytest.raises(Refused, match="organization"):
        requests.place_of(pb.GetTipRequest())
    with pytest.raises(Refused, match="organization"):
        requests.slug_of(pb.GetOrganizationRequest())


@pytest.mark.parametrize("mode", [3, -1])
def test_a_retention_that_has_no_name_is_refused(mode: int) -> None:
    request = pb.CreateVaultRequest()
    request.retention_policy.mode = mode  # type: ignore[assignment]
    with pytest.raises(Refused, match="retention"):
        requests.retained_blocks(request)


def test_retention() -> None:
    policy = pb.BlockRetentionPolicy(mode=pb.BLOCK_RETENTION_MODE_COMPACTED, retention_blocks=5)
    assert requests.retained_blocks(pb.CreateVaultRequest()) == 0
    assert requests.retained_blocks(pb.CreateVaultRequest(retention_policy=pb.BlockRetentionPolicy())) == 0
    assert requests.retained_blocks(pb.CreateVaultRequest(retention_policy=policy)) == 5


def test_bytes_that_are_no_message_are_refused() -> None:
    parse = messages.parser(pb.WriteRequest, messages.same)
    for content in (b"\xff", b"\x0a\x05abc", b"\x0a\x03\x08\x80", b"\x1a\x04\x0a\x02\xff\xfe"):
        with pytest.raises(GrpcError, match=r"ledger\.v1\.WriteRequest"):
            parse(content)


def test_unknown_fields_are_passed_over() -> None:
    request = pb.WriteRequest(organization=pb.OrganizationSlug(slug=1), idempotency_key=b"k" * 16)
    content = request.SerializeToString() + b"\x3a\x0cclient:admin" + b"\x20\x07"
    order = messages.parser(pb.WriteRequest, partial(requests.parse_write, most=MOST))(content)
    assert order.draft.sequence is None


# ---- Both wires ----

SAME = {
    "header": (outbound.header_pb(HEADER), answers.header_json(HEADER)),
    "transaction": (outbound.transaction_pb(TRANSACTION), answers.transaction_json(TRANSACTION)),
    "tx-proof": (outbound.proof_pb(*TX_PROOF), answers.tx_proof_json(TX_PROOF)),
    "chain": (
        pb.ChainProof.FromString(b"".join(chain_parts([HEADER, HEADER]))),
        orjson.loads(orjson.dumps(answers.chain_json([HEADER, HEADER]))),
    ),
    "success": (
        pb.WriteSuccess(**outbound.success_fields(COMMITTED, None)),
        answers.success_json(COMMITTED, None),
    ),
    "success-proved": (
        pb.BatchWriteSuccess(**outbound.success_fields(COMMITTED, TX_PROOF)),
        answers.success_json(COMMITTED, TX_PROOF),
    ),
    "read": (outbound.read_pb(ENTITY, 3), answers.read_json(ENTITY, 3)),
    "read-lasting": (outbound.read_pb(LASTING, 3), answers.read_json(LASTING, 3)),
    "result": (outbound.result_pb("user:1", ENTITY), answers.result_json(b"user:1", ENTITY)),
    "result-absent": (outbound.result_pb("user:9", None), answers.result_json(b"user:9", None)),
    "entity": (outbound.entity_pb(ENTITY), answers.entity_json(ENTITY)),
    "entity-lasting": (outbound.entity_pb(LASTING), answers.entity_json(LASTING)),
    "relationship": (outbound.relationship_pb((b"d:1", b"v", b"u:1")), answers.triple_json((b"d:1", b"v", b"u:1"))),
    "block": (
        pb.Block.FromString(b"".join(block_parts(LedgerBlock(HEADER, TRANSACTION)))),
        answers.block_json(HEADER, TRANSACTION),
    ),
    "block-compacted": (
        pb.Block.FromString(b"".join(block_parts(LedgerBlock(HEADER, None)))),
        answers.block_json(HEADER, None),
    ),
    "announcement": (outbound.announcement_pb(HEADER), answers.announcement_json(HEADER)),
    "organization": (outbound.org_pb(ORG), answers.org_json(ORG)),
    "vault": (outbound.vault_pb(VAULT, "node-1"), answers.vault_json(VAULT, "node-1")),
}


@pytest.mark.parametrize("name", SAME)
def test_both_wires_tell_the_same(name: str) -> None:
    message, document = SAME[name]
    assert told(message) == document


@pytest.mark.parametrize("declined", DECLINED.values(), ids=DECLINED)
def test_both_wires_decline_the_same(declined: WriteDeclined) -> None:
    assert told(outbound.declined_pb(declined)) == answers.declined_json(declined)


@pytest.mark.parametrize(
    ("entity", "witness"),
    [(ENTITY, None), (None, None), (None, RELATED)],
    ids=["present", "absent", "witnessed"],
)
def test_both_wires_prove_the_same(entity: Entity | None, witness: Entity | None) -> None:
    proof = state_proof(entity, witness)
    assert told(outbound.state_proof_pb(proof)) == answers.state_proof_json(proof)


@pytest.mark.parametrize("status", [LedgerStatus.ACTIVE, LedgerStatus.READ_ONLY, LedgerStatus.DELETED])
def test_every_status_of_a_vault(status: LedgerStatus) -> None:
    vault: Vault = VAULT._replace(status=status, retain=0)
    assert told(outbound.vault_pb(vault, "n")) == answers.vault_json(vault, "n")


def test_an_absent_entity_is_told_without_a_value() -> None:
    message = outbound.read_pb(None, 7)
    assert (message.HasField("value"), message.HasField("version"), message.block_height) == (False, False, 7)
    assert outbound.read_pb(LASTING, 7).HasField("value")


def test_a_place_is_named_in_full() -> None:
    header = outbound.header_pb(HEADER._replace(place=LedgerPlace(5)))
    assert header.HasField("vault")
    assert (header.organization.slug, header.vault.slug) == (5, 0)
    assert requests.place_of(pb.GetTipRequest(**outbound.place_pb(PLACE))) == PLACE
    assert base64.b64decode(told(header)["previousHash"]["value"]) == HEADER.previous_hash

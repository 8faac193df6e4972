"""What is told: each message as it stands on the wire, and as protobuf's own JSON would have it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from google.protobuf import json_format

from semel.kernel.errors import REGISTRY, Refusal
from semel.surfaces.ledger.commands import (
    CommittedTransaction,
    Org,
    Vault,
    WriteDeclined,
    WriteErrorCode,
)
from semel.surfaces.ledger.model import (
    ORG_STATUSES,
    VAULT_STATUSES,
    BlockHeader,
    ConditionKind,
    CreateRelationship,
    DeleteEntity,
    DeleteRelationship,
    Entity,
    ExpireEntity,
    LedgerPlace,
    LedgerStatus,
    LedgerTime,
    LedgerTransaction,
    SetCondition,
    SetEntity,
    Sibling,
    Side,
    StateProof,
    TxProof,
)
from semel.surfaces.ledger.proto import ledger_pb2
from semel.surfaces.ledger.rules.chain import block_hash
from semel.surfaces.ledger.wire import answers
from semel.surfaces.ledger.wire.answers import problem_body

VAULT = LedgerPlace(7001, 9001)
AT = LedgerTime(1_767_225_600, 123_456_789)
HEADER = BlockHeader(3, VAULT, b"\1" * 32, b"\2" * 32, b"\3" * 32, AT, 4, 5, b"node-1")
TRANSACTION = LedgerTransaction(
    bytes(range(16)),
    b"app-1",
    2,
    (
        SetEntity(b"user:1", b"alice", 9, SetCondition(ConditionKind.NOT_EXISTS)),
        SetEntity("\u00fc".encode(), b"", 0, SetCondition(ConditionKind.VERSION, version=7)),
        SetEntity(b"k", b"x", 0, SetCondition(ConditionKind.VALUE, value=b"y")),
        SetEntity(b"k", b"x", 0, SetCondition(ConditionKind.MUST_EXIST)),
        DeleteEntity(b"user:9"),
        ExpireEntity(b"user:9", 8),
        CreateRelationship(b"doc:1", b"viewer", b"user:1"),
        DeleteRelationship(b"doc:1", b"viewer", b"user:1#member"),
    ),
    AT,
    b"user:789",
)
COMMITTED = CommittedTransaction(TRANSACTION, HEADER)
WAY = (Sibling(b"\4" * 32, Side.LEFT), Sibling(b"\5" * 32, Side.RIGHT))
PROOF = StateProof(
    b"k", Entity(b"k", b"v", 9, 2), b"\6" * 32, WAY, 17, b"\7" * 32, (b"\x08" * 32,) * 255, 3, b"\3" * 32
)
ABSENCE = PROOF._replace(entity=None, witness=Entity(b"\0l", b"w", 0, 1))
ORG = Org(7001, "Sch\u00f6n".encode(), LedgerStatus.ACTIVE, AT, 5, 1_000, 86_400, True, 2)

MESSAGES: dict[str, tuple[str, answers.Json]] = {
    "header": ("BlockHeader", answers.header_json(HEADER)),
    "block": ("Block", answers.block_json(HEADER, TRANSACTION)),
    "compacted block": ("Block", answers.block_json(HEADER, None)),
    "announcement": ("BlockAnnouncement", answers.announcement_json(HEADER)),
    "transaction": ("Transaction", answers.transaction_json(TRANSACTION)),
    "tx proof": ("MerkleProof", answers.tx_proof_json(TxProof(b"\2" * 32))),
    "merkle proof": ("MerkleProof", answers.proof_json(b"\2" * 32, WAY)),
    "chain": ("ChainProof", orjson.loads(orjson.dumps(answers.chain_json([HEADER, HEADER])))),
    "no chain": ("ChainProof", answers.chain_json([])),
    "state proof": ("StateProof", answers.state_proof_json(PROOF)),
    "absence proof": ("StateProof", answers.state_proof_json(ABSENCE)),
    "success": ("WriteSuccess", answers.success_json(COMMITTED, None)),
    "proved success": ("BatchWriteSuccess", answers.success_json(COMMITTED, TxProof(b"\2" * 32))),
    "read": ("ReadResponse", answers.read_json(Entity(b"k", b"v", 0, 2), 3)),
    "expiring read": ("ReadResponse", answers.read_json(Entity(b"k", b"", 9, 2), 3)),
    "result": ("BatchReadResult", answers.result_json(b"k", Entity(b"k", b"v", 9, 2))),
    "no result": ("BatchReadResult", answers.result_json(b"k", None)),
    "entity": ("Entity", answers.entity_json(Entity(b"k", b"v", 9, 2))),
    "lasting entity": ("Entity", answers.entity_json(Entity(b"k", b"", 0, 2))),
    "relationship": ("Relationship", answers.triple_json((b"doc:1", b"viewer", b"user:1"))),
    "list": ("ListResourcesResponse", answers.list_json("resources", ["doc:1"], "token", 7)),
    "empty list": ("ListEntitiesResponse", answers.list_json("entities", [], "", 0)),
    "orgs": ("ListOrganizationsResponse", answers.list_json("organizations", [answers.org_json(ORG)], "")),
    "made org": ("CreateOrganizationResponse", answers.made_org_json(LedgerPlace(7001))),
    "made vault": ("CreateVaultResponse", answers.made_vault_json(VAULT, HEADER._replace(height=0))),
    **{
        f"org {status.name}": ("GetOrganizationResponse", answers.org_json(ORG._replace(status=status)))
        for status in ORG_STATUSES
    },
    **{
        f"vault {status.name} {retain}": (
            "GetVaultResponse",
            answers.vault_json(Vault(VAULT, status, 3, b"\3" * 32, retain, AT), "node-1"),
        )
        for status in VAULT_STATUSES
        for retain in (0, 7)
    },
    **{
        f"declined {code.name}": ("WriteError", answers.declined_json(WriteDeclined(code, "Because.", "R7")))
        for code in WriteErrorCode
    },
    "declined with all": (
        "WriteError",
        answers.declined_json(
            WriteDeclined(
                WriteErrorCode.VALUE_MISMATCH,
                "Because.",
                "",
                b"k",
                0,
                b"",
                bytes(16),
                3,
                2,
                0,
                {"conflict": "sequence"},
            )
        ),
    ),
}


def without_empty_lists(value: Any) -> Any:
    """As this server tells it: a list or a map without items is left out."""
    if isinstance(value, dict):
        kept = {name: without_empty_lists(member) for name, member in value.items()}
        return {name: member for name, member in kept.items() if member != [] and (name, member) != ("details", {})}
    return [without_empty_lists(member) for member in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_what_protobuf_would_print(name: str) -> None:
    kind, told = MESSAGES[name]
    message = json_format.Parse(orjson.dumps(told), getattr(ledger_pb2, kind)())
    printed = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
    assert without_empty_lists(printed) == told


def test_a_header_in_full() -> None:
    assert answers.header_json(HEADER) == {
        "height": "3",
        "organization": {"slug": "7001"},
        "vault": {"slug": "9001"},
        "previousHash": {"value": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="},
        "txMerkleRoot": {"value": "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="},
        "stateRoot": {"value": "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM="},
        "timestamp": "2026-01-01T00:00:00.123456789Z",
        "leaderId": {"id": "node-1"},
        "term": "4",
        "committedIndex": "5",
    }
    assert answers.header_json(HEADER._replace(place=LedgerPlace(7001)))["vault"] == {"slug": "0"}


def test_an_announcement_has_the_block_hash() -> None:
    told = answers.announcement_json(HEADER)
    assert told["blockHash"] == answers.hash_json(block_hash(HEADER))
    assert told["height"] == "3"


def test_a_success_has_all_of_the_proof_or_nothing_of_it() -> None:
    assert answers.success_json(COMMITTED, None) == {
        "txId": {"id": "AAECAwQFBgcICQoLDA0ODw=="},
        "blockHeight": "3",
        "assignedSequence": "2",
    }
    proved = answers.success_json(COMMITTED, TxProof(b"\2" * 32))
    assert set(proved) - set(answers.success_json(COMMITTED, None)) == {"blockHeader", "txProof", "transaction"}


def test_an_error_has_what_it_was_given() -> None:
    gap = WriteDeclined(WriteErrorCode.SEQUENCE_GAP, "Go on with 1.", "R7", last=0)
    assert answers.declined_json(gap) == {
        "code": "WRITE_ERROR_CODE_SEQUENCE_GAP",
        "key": "",
        "message": "Go on with 1.",
        "lastCommittedSequence": "0",
    }


def test_absence_is_proved_by_what_stands_there() -> None:
    told = answers.state_proof_json(ABSENCE)
    assert (told["value"], told["expiresAt"], told["version"]) == ("", "0", "0")
    assert told["bucketEntries"] == [{"key": "AGw=", "value": "dw==", "expiresAt": "0", "version": "1"}]
    assert "bucketEntries" not in answers.state_proof_json(ABSENCE._replace(witness=None))


@pytest.mark.parametrize(
    ("at", "wanted"),
    [
        (LedgerTime(0), "1970-01-01T00:00:00Z"),
        (LedgerTime(0, 1), "1970-01-01T00:00:00.000000001Z"),
        (LedgerTime(1, 120_000_000), "1970-01-01T00:00:01.120Z"),
        (LedgerTime(1, 120_000), "1970-01-01T00:00:01.000120Z"),
        (LedgerTime(1, 999_999_999), "1970-01-01T00:00:01.999999999Z"),
        (LedgerTime(-1, 500_000_000), "1969-12-31T23:59:59.500Z"),
        (LedgerTime(253_402_300_799), "9999-12-31T23:59:59Z"),
    ],
    ids=str,
)
def test_an_instant_has_as_many_digits_as_it_needs(at: LedgerTime, wanted: str) -> None:
    assert answers.instant_text(at) == wanted


# -- refusals ---------------------------------------------------------------------------------------------------------

CODES = [kind.name for kind in REGISTRY.values() if kind.code.startswith("ledger:")]
NUMBERED = {
    "organization_not_found": "3100",
    "vault_not_found": "3101",
    "invalid_argument": "3203",
    "internal": "3204",
}


@pytest.mark.parametrize("code", CODES)
def test_a_refusal_is_a_problem_document(code: str) -> None:
    kind = REGISTRY[f"ledger:{code}"]
    assert orjson.loads(problem_body(Refusal(f"ledger:{code}", "Because."))) == {
        "type": f"/errors/ledger-{code.replace('_', '-')}",
        "title": kind.title,
        "status": kind.status,
        "code": kind.grpc.name,
        "error_code": NUMBERED.get(code, code.upper()),
        "detail": "Because.",
        "retry": kind.retry.value,
    }


def test_a_refusal_says_when_to_come_back_and_what_it_is_about() -> None:
    told = orjson.loads(
        problem_body(Refusal("ledger:resource_exhausted", "Because.", {"field": "x"}, retry_after_ms=1_500))
    )
    assert told["retry_after_ms"] == 1_500
    assert told["context"] == {"field": "x"}

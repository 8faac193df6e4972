"""The ledger gives the same answers over HTTP and over gRPC, to the same generated calls."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.ledger.rig import Ledger, serving
from tests.ledger.words import Message, Place, Refused, text
from tests.stores.calls import operation
from tests.stores.each import WIRES
from tests.stores.names import Names

SEEDS = range(3)
CALLS = 250


def called(chance: random.Random) -> tuple[str, Message]:
    """A method and its request, without the place."""
    client = {"id": f"client-{chance.randrange(2)}"}
    operations = [operation(chance) for _ in range(chance.randrange(1, 4))]
    identity: Message = {"idempotencyKey": text(bytes([1, chance.randrange(60)]) * 8)}
    if chance.random() < 0.4:
        identity = {"sequence": str(chance.randrange(1, 9))}
    key, height = f"entity-{chance.randrange(8)}", str(chance.randrange(1, 9))
    calls: tuple[tuple[str, Message], ...] = (
        ("Write", {"clientId": client, "operations": operations} | identity),
        ("Write", {"clientId": client, "operations": operations} | identity),
        ("Write", {"clientId": client, "operations": operations, "includeTxProof": True} | identity),
        ("BatchWrite", {"clientId": client, "operations": [{"operations": operations}]} | identity),
        ("Read", {"key": key}),
        ("HistoricalRead", {"key": key, "atHeight": height}),
        ("VerifiedRead", {"key": key}),
        ("VerifiedRead", {"key": key, "atHeight": height, "includeChainProof": True, "trustedHeight": "1"}),
        ("BatchRead", {"keys": [key, "entity-1"]}),
        ("ListEntities", {"limit": 2}),
        ("ListEntities", {"limit": 2, "atHeight": height}),
        ("ListRelationships", {"limit": 2}),
        ("ListResources", {"resourceType": "doc"}),
        ("GetBlock", {"height": height}),
        ("GetBlockRange", {"startHeight": "1", "endHeight": height}),
        ("GetTip", {}),
        ("GetVault", {}),
        ("GetClientState", {"clientId": client}),
    )
    return chance.choice(calls)


def told(ledger: Ledger, place: Place, rpc: str, fields: Message, names: Names) -> str:
    """The answer or the refusal, with names for what is new in each place."""
    found: Any
    try:
        found = ledger.ask(rpc, place, **fields)
        if rpc in ("Read", "HistoricalRead") and "value" not in found:
            found = {}  # over HTTP that is a status
        if rpc == "HistoricalRead":
            found.pop("version", None)  # which HTTP alone tells
    except Refused as refusal:
        found = {"refused": refusal.code, "number": refusal.error_code}
    return names.mapped(json.dumps(found, sort_keys=True, separators=(",", ":")))


@pytest.mark.parametrize("seed", SEEDS)
def test_both_wires_answer_alike(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with serving(tmp_path / "data", "sqlite") as site:
        ledgers = [site.ledger(via) for via in WIRES]
        places = [ledger.new_place() for ledger in ledgers]
        names = [Names() for _ in WIRES]
        for number in range(CALLS):
            rpc, fields = called(chance)
            over_http, over_grpc = (
                told(ledger, place, rpc, fields, some)
                for ledger, place, some in zip(ledgers, places, names, strict=True)
            )
            assert over_grpc == over_http, f"call {number} of seed {seed}: {rpc} {fields}"

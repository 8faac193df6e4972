"""An answer is called complete only if nothing was left out; and what a caller may not read changes nothing in it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from semel.kernel.keys import pack
from semel.server.auth.principals import DEVELOPER, AccessScope, Principal, Role
from semel.server.writes.lookup import FoundWrites, ProbeBudget, WriteQuery, find_writes
from semel.store.protocol import AnyTable, Row
from semel.surfaces.deltas import find as find_deltas
from semel.surfaces.deltas.tables import (
    DELTA_GATEWAY,
    DELTA_ID,
    DELTA_LEGACY_ID,
    DELTA_LOG,
    DeltaGatewayRow,
    DeltaIdRow,
    DeltaLegacyIdRow,
    DeltaLogRow,
    gateway_key,
)
from semel.surfaces.events.find import PRUNED_HINT
from semel.surfaces.events.tables import (
    EVENT_HEAD,
    EVENT_ID,
    EVENT_PARTITION,
    EventHeadRow,
    EventIdRow,
    EventPartitionRow,
)
from semel.surfaces.jobs.tables import JOB_TENANT, JobTenantRow
from semel.surfaces.ledger.find import FREED_HINT
from semel.surfaces.ledger.rules.commits import transaction_id
from semel.surfaces.ledger.tables import (
    LEDGER_BLOCK,
    LEDGER_ORG,
    LEDGER_PLACE,
    LEDGER_STREAM,
    BlockRow,
    LedgerStreamRow,
    OrgRow,
    PlaceRow,
)
from semel.surfaces.registry import SURFACES
from semel.surfaces.streams.tables import STREAM
from tests.server.writes.looked import blank, looked
from tests.server.writes.test_budget import stream

Rows = dict[AnyTable, Sequence[Row]]
GATEWAYS = [f"ada-{number:02}" for number in range(12)]
DELTAS = 5
"""Deltas of each gateway."""


def reader(*scopes: tuple[str, bool], on: str = "*") -> Principal:
    """A caller that may read these names, or names with these prefixes, on one surface or on all."""
    reach = tuple(AccessScope(on, name.encode(), is_prefix) for name, is_prefix in scopes)
    return Principal("someone", "client", frozenset({Role.READ}), reach)


EVE = reader(("eve", True))


def found(
    rows: Rows, identity: str, place: str | None = None, caller: Principal = DEVELOPER, probes: int = 1_000
) -> FoundWrites:
    """What a look-up on every surface finds in a store with these rows."""
    finders = [row.find for row in SURFACES if row.find is not None]
    query = WriteQuery(identity.encode(), None if place is None else place.encode(), caller, True)
    budget = ProbeBudget(probes, 1.0, lambda: 0.0)
    return looked(rows, lambda reading: find_writes(reading, query, finders, budget))


def places(answer: FoundWrites) -> list[str]:
    return [one.place for one in answer.writes]


def delta_id(gateway: str, number: int) -> bytes:
    return pack(gateway.encode()).ljust(31, b"-")[:31] + bytes([number])


def gateways(*, is_cut: bool = False) -> Rows:
    """Gateways with deltas; the log of each may have been cut behind all of them."""
    known, log = list[DeltaIdRow](), list[DeltaLogRow]()
    for name in GATEWAYS:
        for number in range(1, DELTAS + 1):
            key, delta, hlc = gateway_key(name), delta_id(name, number), number << 16
            known.append(DeltaIdRow(key, hlc, delta, hlc))
            row = (b"todos", b'"r"', b'"c"', 1, b"[]", 1, None, None, b"")
            log.append(DeltaLogRow(key, hlc, hlc, delta, *row))
    text = {"authors": b"[]", "rules": b"", "gaps": b""}
    rows = [blank(DeltaGatewayRow, gateway=gateway_key(name), name=name.encode(), **text) for name in GATEWAYS]
    return {DELTA_GATEWAY: rows, DELTA_ID: known, DELTA_LOG: [] if is_cut else log}


def test_the_id_of_a_delta_alone_is_exact_in_logs_that_were_cut() -> None:
    for name in GATEWAYS:
        answer = found(gateways(is_cut=True), delta_id(name, 1).hex())
        assert (places(answer), answer.is_complete) == ([name], True)


def test_the_id_of_a_delta_alone_costs_no_budget_of_scopes() -> None:
    answer = found(gateways(), delta_id(GATEWAYS[-1], 1).hex(), probes=1)
    assert (places(answer), answer.is_complete) == ([GATEWAYS[-1]], True)
    assert found(gateways(), "0" * 64, probes=1).is_complete


def test_among_too_many_deltas_an_id_alone_is_not_exact_and_the_answer_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(find_deltas, "MAX_COMPARED", DELTAS)
    monkeypatch.setattr(find_deltas, "FIRST_ROWS", 1)
    for identity in (delta_id("ada-00", DELTAS).hex(), delta_id("ada-00", 1).hex(), "0" * 64):
        for caller in (DEVELOPER, EVE, reader(("ada-00", False))):
            answer = found(gateways(), identity, caller=caller)
            expected = [] if caller is EVE or identity == "0" * 64 else ["ada-00"]
            assert (places(answer), list(answer.hints)) == (expected, [find_deltas.SCAN_HINT])
    assert places(found(gateways(is_cut=True), delta_id("ada-00", 1).hex())) == []
    exact = found(gateways(is_cut=True), f"{delta_id('ada-00', 1).hex()}@{1 << 16}")
    assert (places(exact), exact.is_complete) == (["ada-00"], True)


def test_where_ids_are_trusted_an_id_alone_is_found_in_a_log_that_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_deltas, "MAX_COMPARED", 0)
    rows = gateways(is_cut=True)
    trusted = [DeltaLegacyIdRow(row.gateway, row.id, row.position) for row in rows[DELTA_ID]]
    assert places(found(rows | {DELTA_LEGACY_ID: trusted}, delta_id("ada-03", 2).hex())) == ["ada-03"]


@pytest.mark.parametrize("identity", [delta_id("ada-05", 1).hex(), f"{delta_id('ada-05', 1).hex()}@65536"])
def test_a_delta_of_another_tenant_has_the_answer_of_an_unknown_one(identity: str) -> None:
    for place in (None, "ada-05", "eve-05"):
        for probes in (1_000, 5, 1):
            known, unknown = (
                found(gateways(), one, place, EVE, probes) for one in (identity, "0" * 64 + identity[64:])
            )
            assert known == unknown
            assert known.writes == []
    named = reader(("ada-05", False), ("ada-06", False), on="deltas")
    assert places(found(gateways(), identity, caller=named, probes=2)) == ["ada-05"]
    assert found(gateways(), identity, caller=named, probes=2).is_complete, "the other gateways do not count"


def ledger(*, is_freed: bool) -> Rows:
    """Forty vaults of four organizations with a block each, which may be freed."""
    tips, blocks, streams = list[PlaceRow](), list[BlockRow](), list[LedgerStreamRow]()
    for org in range(1, 5):
        for vault in range(10):
            blob = {"tip_hash": b"", "state_root": b""}
            tips.append(blank(PlaceRow, org=org, vault=vault, status=1, height=1, **blob))
            digests = dict.fromkeys(("previous_hash", "tx_root", "state_root", "leader", "stale", "operations"), b"")
            commit = {"client": b"c", "id": tx_id(org, vault), "key": b"", "request": b"", "actor": b"client:c"}
            kept = dict.fromkeys(commit, b"") if is_freed else commit
            blocks.append(blank(BlockRow, org=org, vault=vault, height=1, sequence=1, life=1, **digests, **kept))
            streams.append(LedgerStreamRow(org, vault, b"c", 1, 1, 1, 1, b""))
    orgs = [blank(OrgRow, org=org, name=b"o", status=1) for org in range(1, 5)]
    return {LEDGER_ORG: orgs, LEDGER_PLACE: tips, LEDGER_BLOCK: blocks, LEDGER_STREAM: streams}


def tx_id(org: int, vault: int) -> bytes:
    return transaction_id(1, bytes(8) + bytes([org, vault]))


def test_a_block_that_was_freed_is_told_of() -> None:
    for identity, place in ((tx_id(2, 3).hex(), None), (tx_id(2, 3).hex(), "2/3"), ("1", "2/3")):
        assert (answer := found(ledger(is_freed=False), identity, place)).is_complete
        assert places(answer) == ["2/3"]
        answer = found(ledger(is_freed=True), identity, place)
        assert (places(answer), list(answer.hints)) == ([], [FREED_HINT])
        assert found(ledger(is_freed=True), identity, place, reader(("5", False))).hints == []
    for identity, place in ((transaction_id(2, bytes(10)).hex(), None), ("2", "2/3")):
        assert found(ledger(is_freed=True), identity, place).is_complete, "there is no such height"


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        (["2"], [f"2/{vault}" if vault else "2" for vault in range(10)]),
        (["2/3"], ["2/3"]),
        (["2/"], ["2"]),
        (["2", "2/3", "4/9", "nothing", "/", "1/x", "9" * 30], [*(f"2/{v}" if v else "2" for v in range(10)), "4/9"]),
        ([], []),
    ],
)
def test_only_places_of_the_ledger_within_the_scopes_are_tried_and_count(
    scopes: list[str], expected: list[str]
) -> None:
    caller = reader(*((scope, False) for scope in scopes), on="ledger")
    answer = found(ledger(is_freed=False), "c/1", caller=caller, probes=len(expected))
    assert (places(answer), answer.is_complete) == (expected, True)
    assert places(found(ledger(is_freed=False), "c/1", "2", caller)) == [one for one in expected if one[0] == "2"]
    assert places(found(ledger(is_freed=False), "c/1", "4/9", caller)) == [one for one in expected if one == "4/9"]


def test_a_scope_that_is_a_prefix_reaches_the_places_that_begin_with_it() -> None:
    assert places(found(ledger(is_freed=False), "c/1", caller=reader(("3/", True)))) == [
        f"3/{vault}" if vault else "3" for vault in range(10)
    ]


def pruned() -> Rows:
    """An event of each partition was pruned."""
    return {
        EVENT_HEAD: [EventHeadRow(b"", 9, 1, 7)],
        EVENT_ID: [EventIdRow(pack(b"gone"), 5, 1, bytes(32))],
        EVENT_PARTITION: [EventPartitionRow(b"orders", 5, 0)],
    }


def test_a_pruned_event_is_told_of_to_those_who_may_read_all_events() -> None:
    assert [one.identity for one in found(pruned(), "gone").writes] == ["event_id"]
    assert list(found(pruned(), "gone", "orders").hints) == [PRUNED_HINT]
    assert found(pruned(), "gone", "never-used").is_complete
    for number, is_complete in (("0", True), ("1", False), ("7", False), ("8", True)):
        assert found(pruned(), number).is_complete == is_complete
        assert found(pruned(), number, "orders").is_complete == is_complete
        assert found(pruned(), number, "1/2").is_complete
    for identity in ("gone", "5"):
        for place in (None, "orders"):
            assert found(pruned(), identity, place, reader(("orders", True))) == FoundWrites([], [])


@pytest.mark.parametrize("identity", ["k", tx_id(1, 1).hex(), "c/1", "0" * 64, "0" * 64 + "@65536", "5"])
def test_a_caller_that_may_read_nothing_is_given_no_hint(identity: str) -> None:
    rows = gateways() | ledger(is_freed=True) | pruned()
    rows |= {STREAM: [stream(number) for number in range(9)], JOB_TENANT: [JobTenantRow(b"a", 1)]}
    for caller in (reader(), Principal("worker", "client", frozenset({Role.WORK}))):
        assert found(rows, identity, caller=caller, probes=0) == FoundWrites([], [])
    assert found(rows, identity, probes=0).hints != []

"""Many threads at once: one identical request, one stream, one key with two payloads, one new organization."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.harness.together import at_once
from tests.ledger import hashes
from tests.ledger.rig import Ledger
from tests.ledger.words import Place, data, fresh, new_key, put

THREADS = 8
TIMES = 100


@pytest.mark.each_store
@pytest.mark.parametrize("identity", ["key", "sequence", "both"])
def test_2_one_identical_request_a_hundred_times(ledger: Ledger, place: Place, identity: str) -> None:
    """One block, one transaction id in all answers, and nobody is refused."""
    client, key = fresh("client"), new_key()
    whole: dict[str, Any] = {"key": key, "sequence": 1}
    given = whole if identity == "both" else {identity: whole[identity]}
    times = TIMES if identity == "both" else TIMES // 10

    def send() -> set[object]:
        told = [ledger.write(place, client, put("once", b"1", not_exists=True), **given) for _ in range(times)]
        assert {one.code for one in told} <= {"OK", "ALREADY_COMMITTED"}, told
        return {one.facts for one in told}

    facts = set().union(*at_once([send] * THREADS))
    assert len(facts) == 1
    assert (ledger.height(place), ledger.last(place, client)) == (1, 1)


@pytest.mark.each_store
def test_one_key_with_two_payloads_is_committed_once(ledger: Ledger, place: Place) -> None:
    client, key = fresh("client"), new_key()
    sends = [partial(ledger.write, place, client, put("k", str(number % 2)), key=key) for number in range(THREADS)]
    told = at_once(sends)
    winners = {number % 2 for number, one in enumerate(told) if one.code in ("OK", "ALREADY_COMMITTED")}
    assert len(winners) == 1
    assert {one.code for number, one in enumerate(told) if number % 2 not in winners} == {"IDEMPOTENCY_KEY_REUSED"}
    assert len({one.tx for one in told}) == 1
    assert ledger.height(place) == 1


@pytest.mark.each_store
def test_one_sequence_with_many_payloads_is_committed_once(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    told = at_once([partial(ledger.write, place, client, put("k", str(n)), sequence=1) for n in range(THREADS)])
    codes = sorted(one.code for one in told)
    assert codes == ["IDEMPOTENCY_KEY_REUSED"] * (THREADS - 1) + ["OK"]
    assert len({one.tx for one in told}) == 1


@pytest.mark.each_store
def test_writers_with_keys_alone_share_a_counter(ledger: Ledger, place: Place) -> None:
    """Each sequence once, no hole, and a chain that holds."""
    client = fresh("client")

    def send() -> list[int | None]:
        return [ledger.commit(place, client, put("k"), key=new_key()).sequence for _ in range(8)]

    sequences = sorted(number or 0 for numbers in at_once([send] * THREADS) for number in numbers)
    assert sequences == list(range(1, 8 * THREADS + 1))
    blocks = ledger.ask("GetBlockRange", place, startHeight="1", endHeight="1000")["blocks"]
    for block in blocks:
        hashes.check_block(block)
    hashes.check_chain([block["header"] for block in blocks])
    assert [block["transactions"][0]["sequence"] for block in blocks] == [str(one) for one in sequences]


@pytest.mark.each_store
def test_updates_are_not_lost(ledger: Ledger, place: Place) -> None:
    """Read, add one, write on condition of the version; again when it has changed."""

    def add(client: str) -> None:
        for _ in range(3):
            code = ""
            while code != "OK":
                found = ledger.ask("Read", place, key="count", consistency="READ_CONSISTENCY_LINEARIZABLE")
                number = int(ledger_value(found))
                condition = {"version": found["version"]} if "version" in found else {"not_exists": True}
                code = ledger.write(place, client, put("count", str(number + 1), **condition), key=new_key()).code
                assert code in ("OK", "VERSION_MISMATCH", "KEY_EXISTS")

    at_once([partial(add, fresh("client")) for _ in range(4)])
    assert ledger.value(place, "count") == b"12"


def ledger_value(found: dict[str, str]) -> bytes:
    return data(found["value"]) if "value" in found else b"0"


@pytest.mark.each_store
def test_creations_with_one_key_make_one_organization(ledger: Ledger) -> None:
    metadata = (("idempotency-key", fresh("creation")),)
    asks = [partial(ledger.wire.ask, "CreateOrganization", {"name": "one"}, metadata)] * THREADS
    assert len({answer["slug"]["slug"] for answer in at_once(asks)}) == 1

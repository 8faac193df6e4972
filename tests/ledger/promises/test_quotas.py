"""Quotas of an organization: given when it is made, told, and kept on both wires."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.together import eventually
from tests.ledger.rig import Ledger
from tests.ledger.words import Message, Place, Refused, fresh, new_key, put, refused, relate, remove, unrelate


def made(ledger: Ledger, **quota: Any) -> Place:
    """An organization with a quota."""
    answer = ledger.ask("CreateOrganization", name=fresh("org"), quota=quota)
    return Place(int(answer["slug"]["slug"]))


def told(ledger: Ledger, org: Place) -> Message | None:
    return ledger.ask("GetOrganization", slug={"slug": str(org.org)}).get("quota")


def test_e5_a_quota_is_told_as_it_was_given(ledger: Ledger) -> None:
    org = made(ledger, maxStorageBytes="1000", maxVaults=3, maxWriteOpsPerSec=7)
    expected = {"maxStorageBytes": "1000", "maxVaults": 3, "maxWriteOpsPerSec": 7, "maxReadOpsPerSec": 0}
    assert told(ledger, org) == expected
    assert told(ledger, ledger.new_org()) is None
    assert told(ledger, made(ledger)) is None


def test_e5_a_quota_of_vaults_is_kept(ledger: Ledger) -> None:
    org = made(ledger, maxVaults=2)
    for _ in range(2):
        ledger.new_vault(org)
    with refused("RESOURCE_EXHAUSTED"):
        ledger.new_vault(org)


def test_e5_a_quota_of_bytes_is_kept_over_all_scopes_and_a_refusal_takes_no_sequence(ledger: Ledger) -> None:
    org = made(ledger, maxStorageBytes="100")
    vault, client = ledger.new_vault(org), fresh("client")
    first = ledger.commit(org, client, put("a" * 10, b"x" * 40), sequence=1)
    ledger.commit(vault, client, put("b" * 10, b"x" * 40), sequence=1)
    for operation in (put("c"), put("b" * 10, b"x" * 41), relate("d:1", "r", "u:1")):
        with refused("RESOURCE_EXHAUSTED"):
            ledger.write(vault, client, operation, sequence=2)
    ledger.check_replay(ledger.write(org, client, put("a" * 10, b"x" * 40), sequence=1), first)
    assert ledger.last(vault, client) == 1
    ledger.commit(vault, client, put("b" * 10, b"y" * 40), sequence=2)  # no larger than before
    ledger.commit(vault, client, put("b" * 10, b"y" * 10), put("c" * 10, b"y" * 20), sequence=3)
    with refused("RESOURCE_EXHAUSTED"):
        ledger.write(org, client, put("e"), sequence=2)
    ledger.commit(org, client, remove("a" * 10), remove("missing"), sequence=2)
    ledger.commit(vault, client, relate("d:1", "r", "u:1"), relate("d:1", "r", "u:1"), sequence=4)
    ledger.commit(vault, client, unrelate("d:1", "r", "u:1"), sequence=5)
    ledger.commit(org, client, put("f" * 10, b"x" * 40), sequence=3)
    with refused("RESOURCE_EXHAUSTED"):
        ledger.write(org, client, put("g"), sequence=4)


def test_e5_a_quota_of_transactions_a_second_is_kept(ledger: Ledger) -> None:
    """Retries of what was committed are answered all the while."""
    org, client = made(ledger, maxWriteOpsPerSec=1), fresh("client")
    key = new_key()
    first = ledger.commit(org, client, put("a"), key=key)

    def is_refused() -> bool:
        try:
            ledger.commit(org, client, put("b"), key=new_key())
        except Refused as told:
            return told.code == "RESOURCE_EXHAUSTED"
        return False

    eventually(is_refused, "a second transaction in one second")
    ledger.check_replay(ledger.write(org, client, put("a"), key=key), first)
    other = ledger.new_org()
    for number in range(3):
        ledger.commit(other, client, put("a"), sequence=number + 1)


@pytest.mark.parametrize(
    "quota",
    [{"maxReadOpsPerSec": 1}, {"maxStorageBytes": str(2**62 + 1)}, {"maxStorageBytes": str(2**64 - 1)}],
    ids=str,
)
def test_e5_a_quota_that_cannot_be_kept_is_refused(ledger: Ledger, quota: Message) -> None:
    with refused("INVALID_ARGUMENT", "3203"):
        made(ledger, **quota)


def test_e5_a_key_that_made_an_organization_with_another_quota_is_refused(ledger: Ledger) -> None:
    name, metadata = fresh("org"), [("idempotency-key", fresh("key"))]

    def make(**quota: Any) -> Any:
        return ledger.wire.ask("CreateOrganization", {"name": name, **({"quota": quota} if quota else {})}, metadata)

    first = make(maxVaults=2)
    again = make(maxVaults=2)
    assert (again["slug"], again.is_replay) == (first["slug"], True)
    for other in ({"maxVaults": 3}, {"maxStorageBytes": "2"}, {}):
        with refused("FAILED_PRECONDITION"):
            make(**other)

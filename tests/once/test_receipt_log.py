"""A log of receipts on a Semel server says what a table of receipts says, change by change."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from semel.once.claims import Act, OnceClaim, ReceiptChange
from semel.once.errors import InvalidKey
from semel.once.identity import OnceIdentity
from semel.once.receipt_log import RESOLUTION_MS, ReceiptEntry, decided, last_entry
from semel.once.stores import OnceSqliteStore
from semel.once.table import DONE, FAILED, TABLE, Row

WHO = OnceIdentity("shop", "k")
LEASE_MS, KEEP_MS = 3_000, 10_000
START_MS = 1_790_000_000_000


class Log:
    """The log of one key, without a server."""

    def __init__(self) -> None:
        self.entries: list[ReceiptEntry] = []

    def change(self, change: ReceiptChange, now_ms: int) -> Sequence[Row]:
        """Decide on the last entry, as it comes back from JSON, and append."""
        last = last_entry([entry.as_json() for entry in self.entries])
        entry, rows = decided(change, last, now_ms)
        if entry is not None:
            self.entries.append(entry)
        return rows


def drawn(chance: random.Random) -> ReceiptChange:
    """Any change, by one of three callers, two of which have the same arguments."""
    number = chance.randrange(3)
    claim = OnceClaim(WHO, bytes([number // 2]) * 32, f"caller {number}", KEEP_MS, LEASE_MS)
    act = chance.choice(list(Act))
    if act is Act.RESOLVE:
        return ReceiptChange(act, WHO, result="resolved", keep_ms=KEEP_MS)
    before = f"caller {chance.randrange(3)}" if act is Act.TAKE_OVER else ""
    state, result = chance.choice([(DONE, "1"), (FAILED, "2"), (DONE, None)])
    return claim.to(act, before=before, state=state, result=result)


@pytest.mark.parametrize("seed", range(40))
def test_log_and_table_agree_on_every_change(seed: int) -> None:
    chance, now_ms = random.Random(seed), START_MS
    log = Log()
    table = OnceSqliteStore(":memory:", TABLE, lambda: now_ms / 1_000)
    runs = 0
    for _ in range(200):
        # Never within the resolution of the server's time behind the end of a lease or a receipt: the log ends both
        # one second later.
        now_ms += chance.choice([0, 0, 1_000, LEASE_MS + RESOLUTION_MS, KEEP_MS])
        change = drawn(chance)
        while any(0 <= now_ms - end < RESOLUTION_MS for end in ends_of(log)):
            now_ms += RESOLUTION_MS
        said, expected = log.change(change, now_ms), table.change(change)
        runs += change.act is Act.CLAIM and bool(said)
        if change.act is Act.FIND:
            assert [_told(row) for row in said] == [_told(row) for row in expected], change
        else:
            assert bool(said) == bool(expected), (change, log.entries[-2:])
    assert runs > 3
    table.close()


def ends_of(log: Log) -> list[int]:
    """When the lease and the receipt of the last entry end."""
    return [end for entry in log.entries[-1:] for end in (entry.lease_until, entry.expires_at)]


def _told(row: Row) -> tuple[object, ...]:
    known, state, result, owner, left_ms, created_ms = row
    return bytes(known), state, result, owner, int(left_ms or 0) > 0, created_ms


def test_a_lease_is_never_over_too_early() -> None:
    log = Log()
    first, second = (OnceClaim(WHO, bytes(32), name, KEEP_MS, LEASE_MS) for name in "ab")
    assert log.change(first.to(Act.CLAIM), START_MS)
    over = START_MS + LEASE_MS + RESOLUTION_MS
    assert not log.change(second.to(Act.TAKE_OVER, before="a"), over - 1)
    assert log.change(second.to(Act.TAKE_OVER, before="a"), over)
    assert not log.change(first.to(Act.FINISH, result="late"), over)


def test_a_receipt_is_never_forgotten_too_early() -> None:
    log = Log()
    first, second = (OnceClaim(WHO, bytes(32), name, KEEP_MS, LEASE_MS) for name in "ab")
    log.change(first.to(Act.CLAIM), START_MS)
    # The server's time has whole seconds: it may have been almost one second later.
    log.change(first.to(Act.FINISH, result="1"), START_MS)
    assert not log.change(second.to(Act.CLAIM), START_MS + KEEP_MS + RESOLUTION_MS - 1)
    assert log.change(second.to(Act.CLAIM), START_MS + KEEP_MS + RESOLUTION_MS)


def test_a_longer_keep_than_the_stream_lives_is_refused() -> None:
    log = Log()
    claim = OnceClaim(WHO, bytes(32), "a", KEEP_MS, LEASE_MS)
    assert log.change(claim.to(Act.CLAIM), START_MS)
    assert log.change(claim.to(Act.RELEASE), START_MS)
    with pytest.raises(InvalidKey, match="shorter keep"):
        log.change(claim._replace(keep_ms=KEEP_MS + 1).to(Act.CLAIM), START_MS)

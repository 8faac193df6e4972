"""Keys and values as the engine sees them: one lock a name, one decision. Pure.

Verdict, effect and receipt are one transaction: a crash before the commit leaves neither, and a retry after it is
answered from the receipt.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from semel.surfaces.kv.tables import KV_RECEIPT, KV_VALUE, KvReceiptRow, KvValueRow

from semel.engine.contract import DecisionResult, Order, Stage, View
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.kernel.errors import Refusal
from semel.kernel.verdict import Verdict, Window, judge
from semel.store.protocol import AnyTable, Lock
from semel.store.table import Key

ABSENT = 0
"""The version of a name without a value."""


class PutValue(NamedTuple):
    """Store a value, if the name has the expected version; None expects nothing."""

    name: bytes
    value: bytes
    expected: int | None
    key: bytes | None
    fingerprint: bytes


class ValueStored(NamedTuple):
    """The version of the value, first or replayed."""

    version: int
    is_replayed: bool = False


class KvContract:
    """The rules. `keep` is how long a key is honoured."""

    name = "kv"

    def __init__(self, keep: Window) -> None:
        self._keep = keep

    def locks(self, command: PutValue) -> Sequence[Lock]:
        """One lock a name."""
        return (Lock(b"kv:" + command.name),)

    def needs(self, command: PutValue) -> Generator[Stage, View, None]:
        """The value, and the receipt of the key."""
        keys: list[tuple[AnyTable, Key]] = [(KV_VALUE, (command.name,))]
        if command.key is not None:
            keys.append((KV_RECEIPT, (command.name, command.key)))
        yield Stage(keys=keys)

    def order(self, command: PutValue) -> Order | None:
        """Arrival is the order."""
        return None

    def decide(self, view: View, command: PutValue, now: Now) -> DecisionResult:
        """The receipt first: a retry gets the first answer, whatever has changed since."""
        receipt = None if command.key is None else view.get(KV_RECEIPT, (command.name, command.key))
        verdict = judge(receipt, command.fingerprint, now.expiry_ms)
        if verdict is Verdict.MISMATCH:
            return DecisionResult(Refusal("IDEMPOTENCY_MISMATCH", "This key was used for another write to this name."))
        if verdict is Verdict.REPLAY:
            assert receipt is not None
            return DecisionResult(ValueStored(receipt.version, is_replayed=True))
        known = view.get(KV_VALUE, (command.name,))
        version = ABSENT if known is None else known.version
        if command.expected is not None and command.expected != version:
            return DecisionResult(Refusal("PRECONDITION_FAILED", "The name has another version than the one expected."))
        view.put(KV_VALUE, KvValueRow(command.name, version + 1, command.value))
        if command.key is not None:
            expires_at = self._keep.expires_at(now.ms)
            fresh = KvReceiptRow(command.name, command.key, command.fingerprint, expires_at, version + 1)
            view.put(KV_RECEIPT, fresh)
        return DecisionResult(ValueStored(version + 1))

    def chores(self, reading: Reading) -> Sequence[PutValue]:
        """Receipts expire with their generation: there is nothing to sweep."""
        return ()


def find_value(reading: Reading, name: bytes) -> KvValueRow | None:
    """The value of a name."""
    return reading.get(KV_VALUE, (name,))

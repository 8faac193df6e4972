"""The contract of keys and values: one lock per name, one decision. Pure.

One transaction stores the effect and the receipt: a crash before the commit leaves neither, and a retry after the
commit is answered from the receipt.
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
    """Store a value, if the name has the expected version; None accepts any version."""

    name: bytes
    value: bytes
    expected: int | None
    key: bytes | None
    fingerprint: bytes


class ValueStored(NamedTuple):
    """The version of the stored value; a replay has the version of the first write."""

    version: int
    is_replayed: bool = False


class KvContract:
    """The rules. `keep` is the retention of receipts."""

    name = "kv"

    def __init__(self, keep: Window) -> None:
        self._keep = keep

    def locks(self, command: PutValue) -> Sequence[Lock]:
        """One lock per name."""
        return (Lock(b"kv:" + command.name),)

    def needs(self, command: PutValue) -> Generator[Stage, View, None]:
        """The value, and the receipt of the key."""
        keys: list[tuple[AnyTable, Key]] = [(KV_VALUE, (command.name,))]
        if command.key is not None:
            keys.append((KV_RECEIPT, (command.name, command.key)))
        yield Stage(keys=keys)

    def order(self, command: PutValue) -> Order | None:
        """None: writes are decided in order of arrival."""
        return None

    def decide(self, view: View, command: PutValue, now: Now) -> DecisionResult:
        """Check the receipt first: a retry gets the first answer, even if the value has changed since."""
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
        """None: receipts expire with their generation."""
        return ()


def find_value(reading: Reading, name: bytes) -> KvValueRow | None:
    """The value of a name."""
    return reading.get(KV_VALUE, (name,))

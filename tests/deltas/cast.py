"""Several scripted clients of one gateway: who takes part, what they did, and whether they agree at the end."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.deltas.client import Scripted
from tests.deltas.truth import Rows, folded
from tests.deltas.vectors import Message, now_ms
from tests.deltas.wire import Deltas, fresh

QUIET_ROUNDS = 5
SHOWN = 200
"""Lines of the journal that a failure shows."""


class Cast:
    """A context manager, since every client has a database to close."""

    def __init__(self, deltas: Deltas, gateway: str) -> None:
        self.deltas = deltas
        self.gateway = gateway
        self.clients: list[Scripted] = []
        self.journal: list[str] = []
        self._all: list[Scripted] = []

    def client(self, name: str = "", *, pushes_first: bool = True, ahead_ms: int = 0) -> Scripted:
        """One more; its clock is this much ahead of the machine's, or behind."""
        made = self._made(name or fresh("client"), pushes_first=pushes_first, physical=lambda: now_ms() + ahead_ms)
        self.clients.append(made)
        return made

    def settle(self) -> None:
        """Rounds in which nobody writes."""
        for _ in range(QUIET_ROUNDS):
            for one in self.clients:
                one.cycle()

    def agree(self) -> Rows:
        """Check that all databases, and those of readers who begin now, hold what all the deltas come to."""
        truth = folded(self.acknowledged)
        found = {one.name: one.rows() for one in self.clients}
        found |= {"a reader from the start": self._read_from_zero(), "a reader in small pages": self._read_from_zero(7)}
        found["a reader of the checkpoint"] = self._read_checkpoint()
        for name, rows in found.items():
            assert rows == truth, f"{name} has {differences(rows, truth)}\n{self.story()}"
        return truth

    def check_untroubled(self) -> None:
        """No page failed, and nothing was given up."""
        troubles = [trouble for one in self._all for trouble in (*one.failures, *one.dropped)]
        assert not troubles, f"{troubles}\n{self.story()}"

    @property
    def acknowledged(self) -> list[Message]:
        """Every delta whose author was told that it is stored."""
        return [delta for one in self.clients for delta in one.acknowledged]

    def story(self) -> str:
        """What happened, for a failure's message."""
        return "\n".join(self.journal[-SHOWN:])

    def _read_from_zero(self, limit: int = 1_000) -> Rows:
        reader = self._made(fresh("reader"))
        reader.pull_all(limit)
        assert not reader.failures, f"{reader.failures}\n{self.story()}"
        return reader.rows()

    def _read_checkpoint(self) -> Rows:
        reader = self._made(fresh("reader"))
        reader.take_checkpoint(names_itself=True)
        reader.pull_all()
        assert not reader.failures, f"{reader.failures}\n{self.story()}"
        return reader.rows()

    def _made(self, name: str, *, pushes_first: bool = True, physical: Callable[[], int] = now_ms) -> Scripted:
        made = Scripted(
            self.deltas, self.gateway, name, pushes_first=pushes_first, physical=physical, journal=self.journal
        )
        self._all.append(made)
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._all:
            one.close()


def differences(found: Rows, truth: Rows) -> dict[str, str]:
    """Only the rows that are not the same."""
    keys = sorted({*found, *truth})
    return {str(key): f"{found.get(key)} for {truth.get(key)}" for key in keys if found.get(key) != truth.get(key)}

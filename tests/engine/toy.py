"""A small contract that uses every part of the engine, and a world without chance.

Counters are raised by keyed writes that leave receipts; jobs are claimed through a range; steps form a sequence. The
other commands are odd on purpose: they raise, ask for more locks, ask for rows late, or write what a store refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from semel.engine.contract import DecisionResult, MissingLocksError, Order, Stage, View, Write
from semel.engine.generations import GENERATION
from semel.engine.reading import Reading
from semel.kernel.clock import Now
from semel.store.migrations import CreateTable, Migration
from semel.store.protocol import AnyTable, Lock, Range, Touch
from semel.store.table import Table


class CounterRow(NamedTuple):
    """How much was added under a name, and when somebody last looked."""

    name: bytes
    value: int
    seen_at: int


class ReceiptRow(NamedTuple):
    """What a keyed addition was told."""

    name: bytes
    key: bytes
    amount: int
    answer: int


class JobRow(NamedTuple):
    """A job, ready or taken."""

    queue: bytes
    number: int
    state: int
    owner: bytes


class StepRow(NamedTuple):
    """The last step of a client."""

    client: bytes
    last: int


COUNTER = Table("counter", CounterRow, key=1, indexes={"seen": ("seen_at",)})
RECEIPT = Table("receipt", ReceiptRow, key=2, generational=True)
JOB = Table("job", JobRow, key=2, indexes={"ready": ("queue", "state")})
STEP = Table("step", StepRow, key=1, heavy=True)

TABLES: tuple[AnyTable, ...] = (GENERATION, COUNTER, RECEIPT, JOB, STEP)
MIGRATIONS = (Migration(1, "the toy's tables", tuple(CreateTable(table.shape) for table in TABLES)),)

READY, TAKEN = 0, 1


class Add(NamedTuple):
    """Raise a counter once for each key; answers with the value that it reached, or None for another amount."""

    name: bytes
    key: bytes
    amount: int = 1


class Look(NamedTuple):
    """The value of a counter; leaves a soft change behind."""

    name: bytes


class Rewrite(NamedTuple):
    """Write a counter as it is."""

    name: bytes


class AddAndLook(NamedTuple):
    """Raise a counter and leave a soft change of the same row."""

    name: bytes


class Enqueue(NamedTuple):
    """A new job; numbers are made by the sender."""

    queue: bytes
    number: int


class Claim(NamedTuple):
    """Take the first ready job of a queue; answers with its number, or None."""

    queue: bytes
    owner: bytes
    late: int = 0
    """How many stages come before the one that names the range."""
    declared: bool = True
    """Whether the range is named before the decision at all."""


class Step(NamedTuple):
    """One step of a sequence: "stored", "again" or "gap"."""

    client: bytes
    number: int
    patient: bool = True
    """Whether it waits for a predecessor that is on its way."""


class Broken(NamedTuple):
    """Changes a counter, then raises."""

    name: bytes
    where: str = "decide"


class Poison(NamedTuple):
    """Inserts a job that is there already without having looked: its flush fails."""

    queue: bytes
    number: int


class AskForLocks(NamedTuple):
    """Needs a lock that it has not named; is content after so many times."""

    name: bytes
    times: int = 1


class Chain(NamedTuple):
    """Adds one and sends this many more after itself."""

    name: bytes
    more: int


class Nothing(NamedTuple):
    """Needs nothing and does nothing."""


class Forget(NamedTuple):
    """Removes a job unseen, and may raise after it."""

    queue: bytes
    number: int
    is_broken: bool = False


class BrokenError(Exception):
    """What a broken command raises."""


class Toy:
    """The contract."""

    name = "toy"

    def __init__(self) -> None:
        self.decided: list[Any] = []
        """Every call of `decide`, in order."""
        self.chores_left: list[Any] = []

    def write(self, command: Any, size: int = 0, cost: int = 1) -> Write:
        """A write of this contract."""
        return Write(self, command, size, cost)

    def locks(self, command: Any) -> Sequence[Lock]:
        """The first name in the command."""
        if isinstance(command, Broken) and command.where == "locks":
            raise BrokenError
        return (Lock(command[0]),) if command else ()

    def order(self, command: Any) -> Order | None:
        """Steps are a sequence."""
        return Order(command.client, command.number) if isinstance(command, Step) else None

    def needs(self, command: Any) -> Generator[Stage, View, None]:
        """What each command names beforehand."""
        if isinstance(command, Broken) and command.where == "needs":
            raise BrokenError
        if isinstance(command, Add):
            yield Stage(keys=[(COUNTER, (command.name,)), (RECEIPT, (command.name, command.key))])
        elif isinstance(command, Step):
            yield Stage(keys=[(STEP, (command.client,))])
        elif isinstance(command, Claim):
            for _ in range(command.late):
                yield Stage()
            if command.declared:
                yield Stage(ranges=[ready(command.queue)])
        elif isinstance(command, Look | Rewrite | AddAndLook | Chain):
            yield Stage(keys=[(COUNTER, (command.name,))])
        if isinstance(command, Broken) and command.where == "second stage":
            yield Stage(keys=[(COUNTER, (command.name,))])
            raise BrokenError

    def decide(self, view: View, command: Any, now: Now) -> DecisionResult:
        """Each command by its own rule."""
        self.decided.append(command)
        rule = _RULES.get(type(command))
        if rule is not None:
            return rule(view, command, now)
        if isinstance(command, AskForLocks) and self.decided.count(command) <= command.times:
            raise MissingLocksError((Lock(b"extra"),))
        return DecisionResult(answer=None)

    def chores(self, reading: Reading) -> Sequence[Any]:
        """What the test has left here; a chore may be an exception, which is raised."""
        for chore in self.chores_left:
            if isinstance(chore, Exception):
                self.chores_left.remove(chore)
                raise chore
        chores, self.chores_left = self.chores_left, []
        return chores


def ready(queue: bytes, limit: int = 1) -> Range:
    """The first ready jobs of a queue."""
    return Range(JOB, "ready", (queue, READY), limit)


def raised(view: View, name: bytes, amount: int) -> CounterRow:
    """Raise a counter in the view."""
    known = view.get(COUNTER, (name,)) or CounterRow(name, 0, 0)
    counter = known._replace(value=known.value + amount)
    view.put(COUNTER, counter)
    return counter


def _add(view: View, command: Add, now: Now) -> DecisionResult:
    receipt = view.get(RECEIPT, (command.name, command.key))
    if receipt is not None:
        return DecisionResult(receipt.answer if receipt.amount == command.amount else None)
    counter = raised(view, command.name, command.amount)
    view.put(RECEIPT, ReceiptRow(command.name, command.key, command.amount, counter.value))
    return DecisionResult(counter.value, signals=(command.name,))


def _look(view: View, command: Look, now: Now) -> DecisionResult:
    counter = view.get(COUNTER, (command.name,))
    touches = (Touch(COUNTER, (command.name,), "seen_at", now.ms),)
    return DecisionResult(None if counter is None else counter.value, touches=touches)


def _rewrite(view: View, command: Rewrite, now: Now) -> DecisionResult:
    counter = view.get(COUNTER, (command.name,))
    assert counter is not None
    view.put(COUNTER, counter)
    return DecisionResult(counter.value)


def _add_and_look(view: View, command: AddAndLook, now: Now) -> DecisionResult:
    counter = raised(view, command.name, 1)
    return DecisionResult(counter.value, touches=(Touch(COUNTER, (command.name,), "seen_at", now.ms),))


def _enqueue(view: View, command: Enqueue, now: Now) -> DecisionResult:
    view.insert(JOB, JobRow(command.queue, command.number, READY, b""))
    return DecisionResult(command.number, signals=(command.queue,))


def _claim(view: View, command: Claim, now: Now) -> DecisionResult:
    found = view.range(ready(command.queue))
    if not found:
        return DecisionResult(None)
    job: JobRow = found[0]
    view.put(JOB, job._replace(state=TAKEN, owner=command.owner))
    return DecisionResult(job.number)


def _step(view: View, command: Step, now: Now) -> DecisionResult:
    row = view.get(STEP, (command.client,))
    last = 0 if row is None else row.last
    if command.number <= last:
        return DecisionResult("again")
    if command.number > last + 1:
        previous = Order(command.client, command.number - 1)
        return DecisionResult("gap", later=command.patient and view.is_admitted(previous))
    view.put(STEP, StepRow(command.client, command.number))
    return DecisionResult("stored")


def _broken(view: View, command: Broken, now: Now) -> DecisionResult:
    raised(view, command.name, 1_000)
    view.insert(JOB, JobRow(b"broken", 1, READY, b""))
    view.rotate(RECEIPT)
    raise BrokenError


def _poison(view: View, command: Poison, now: Now) -> DecisionResult:
    view.insert(JOB, JobRow(command.queue, command.number, TAKEN, b"poison"))
    return DecisionResult("poisonous")


def _chain(view: View, command: Chain, now: Now) -> DecisionResult:
    counter = raised(view, command.name, 1)
    more = [Write(CHAINS, Chain(command.name, command.more - 1))] if command.more else []
    return DecisionResult(counter.value, signals=(command.name,), follow_ups=more)


def _forget(view: View, command: Forget, now: Now) -> DecisionResult:
    view.forget(JOB, (command.queue, command.number))
    if command.is_broken:
        raise BrokenError
    return DecisionResult(None)


_RULES: dict[type, Callable[[View, Any, Now], DecisionResult]] = {
    Add: _add,
    Look: _look,
    Rewrite: _rewrite,
    AddAndLook: _add_and_look,
    Enqueue: _enqueue,
    Claim: _claim,
    Step: _step,
    Broken: _broken,
    Poison: _poison,
    Chain: _chain,
    Forget: _forget,
}
CHAINS = Toy()


class ToyWorld:
    """Clocks that stand still until they are moved, and bytes that count up."""

    def __init__(self, ms: int = 1_000_000) -> None:
        self.wall = ms
        self.monotonic = 0
        self._drawn = 0

    def pass_ms(self, ms: int) -> None:
        """Time passes on both clocks."""
        self.wall += ms
        self.monotonic += ms

    def wall_ms(self) -> int:
        """As set."""
        return self.wall

    def monotonic_ms(self) -> int:
        """As set."""
        return self.monotonic

    def random_bytes(self, count: int) -> bytes:
        """Another number each time."""
        self._drawn += 1
        return self._drawn.to_bytes(count, "big")

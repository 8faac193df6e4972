"""One driver for the models: random steps, clocks, crashes and restarts, and what a model says of them.

A surface gives the steps, its model and a comparison: a subclass of `Simulation`. Each step has a chance of its own,
made from the seed and the step's number, and nothing else decides. So a run can be repeated, and also without some of
its steps: that is how one that fails is made short. `make test` runs fixed seeds (`require_agreement`), and `python -m
tests.SURFACE.model --seeds N` as many as you like (`main`).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from semel.engine.contract import EngineError, Write
from semel.engine.engine import Engine, EngineLimits
from semel.store.protocol import Store
from tests.engine.toy import ToyWorld

STORED_AFTER = ("committed", "answered")
"""Points of the commit path behind which everything is on disk."""
PATIENCE_SECONDS = 60.0
MOST_FAULTS = 5
MOST_RUNS = 400
MOST_SHRUNK = 5


class DisagreementError(Exception):
    """Something that must not be and that ends a run."""


class CrashError(BaseException):
    """The end of the process, seen from inside."""


@dataclass(slots=True)
class Verdict:
    """What differed, and what was seen."""

    steps: int = 0
    crashes: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)

    def require(self, truth: bool, what: str) -> None:
        """A fault unless it is true."""
        if not truth and len(self.faults) < MOST_FAULTS:
            self.faults.append(what)


class Processes:
    """One store and, one after the other, the engines on it; one may be told to die at a point of the commit path."""

    def __init__(self, store: Store, world: ToyWorld, limits: EngineLimits | None = None) -> None:
        self.store = store
        self._limits = limits
        self.world = world
        self._armed = ""
        self._is_next = False
        self._gate: threading.Event | None = None
        self._at_gate = threading.Event()

    def start(self) -> None:
        """Another engine on the same rows."""
        self._armed = ""
        self.engine = Engine(self.store, self.world, self._limits, reach=self._reach)

    async def stop(self) -> bool:
        """The end of it; whether it had died before."""
        await self.engine.stop()
        await asyncio.sleep(0)  # what the lane's thread has handed to the loop
        self._armed = ""
        return self.engine.failure is not None

    def arm(self, point: str) -> None:
        """The engine will die when a write comes to this point of the commit path."""
        self._armed, self._is_next = point, False

    async def submit(self, write: Write) -> Any:
        """The answer, or why there is none."""
        try:
            return await self.engine.submit(write)
        except EngineError as error:
            return error

    async def submit_all(self, writes: Iterable[Write], behind: Write | None = None) -> list[Any]:
        """Decided in this order, in one batch or in several; in one if the lane is held by a write before them."""
        first = None
        if behind is not None:
            self._at_gate.clear()
            self._gate = threading.Event()
            first = self.engine.admit(behind)
            assert self._at_gate.wait(PATIENCE_SECONDS)
        sent = [self.engine.admit(write) for write in writes]
        if first is not None and self._gate is not None:
            gate, self._gate = self._gate, None
            gate.set()
            await first
        return list(await asyncio.gather(*sent, return_exceptions=True))

    def _reach(self, point: str) -> None:
        """In the lane's thread, which may still be busy with the end of the batch before."""
        if point == "gathered" and self._gate is not None:
            gate = self._gate
            self._at_gate.set()
            assert gate.wait(PATIENCE_SECONDS)
        self._is_next = bool(self._armed) and (self._is_next or point == "gathered")
        if self._is_next and point == self._armed:
            self._armed = ""
            raise CrashError


class Simulation(ABC):
    """One run; `only` are the numbers of the steps that happen, all of them unless told otherwise."""

    compared_every = 10
    """Steps between two comparisons of everything."""

    def __init__(self, seed: int, steps: int, only: Collection[int] | None = None) -> None:
        self._seed = seed
        self.numbers = [number for number in range(steps) if only is None or number in only]
        self._chance = random.Random(f"{seed}")
        self._verdict = Verdict()
        self._where = ""

    def run(self) -> Verdict:
        """From an empty store to the last comparison."""
        asyncio.run(self._run())
        return self._verdict

    async def _run(self) -> None:
        await self._start()
        try:
            await self._prepare()
            for number in self.numbers:
                self._chance.seed(f"{self._seed} {number}")
                self._where = f"step {number}"
                await self._step(number)
                self._verdict.steps += 1
                if number % self.compared_every == self.compared_every - 1:
                    await self._compare_all()
                if self._verdict.faults:
                    return
            await self._end()
        except DisagreementError as error:
            self._require(False, str(error))
        finally:
            await self._stop()

    @abstractmethod
    async def _start(self) -> None:
        """The first process."""

    @abstractmethod
    async def _stop(self) -> None:
        """The end of the last one."""

    @abstractmethod
    async def _step(self, number: int) -> None:
        """Whatever chance says."""

    async def _prepare(self) -> None:  # noqa: B027 - nothing, unless a surface says so
        """What is there before the first step."""

    async def _compare_all(self) -> None:  # noqa: B027 - the same
        """Everything that is stored, with the model."""

    async def _end(self) -> None:
        """Behind the last step."""
        await self._compare_all()

    def _require(self, truth: bool, what: str) -> None:
        self._verdict.require(truth, f"{self._where}: {what}")

    def _tell(self, what: str) -> None:
        self._verdict.trace.append(f"{self._where}: {what}")


# -- Many seeds -------------------------------------------------------------------------------------------------------


class Judged(Protocol):
    """What came of a run."""

    faults: list[str]

    @property
    def seen(self) -> Counter[str]:
        """How often each thing was seen."""


class Run(Protocol):
    """Something that is run, and judged."""

    def run(self) -> Judged:
        """From the beginning to the end."""


class Maker(Protocol):
    """Makes a run anew, with some of its steps."""

    def __call__(self, *, only: Sequence[int] | None = None) -> Simulation:
        """All of them, unless told otherwise."""


def shrunk(make: Maker) -> str:
    """What happens in a failing run that was made short, and what is wrong with it."""
    kept = shrink(make().numbers, lambda some: bool(make(only=some).run().faults))
    verdict = make(only=kept).run()
    return "\n".join([f"steps {kept}", *verdict.trace, *verdict.faults])


def shrink(steps: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """As few of the steps as can be found with which it fails: halves are left out, then quarters, then single ones."""
    kept = list(steps)
    size, runs = max(1, len(kept) // 2), 0
    while runs < MOST_RUNS:
        has_shrunk = False
        start = 0
        while start < len(kept) and runs < MOST_RUNS:
            without = kept[:start] + kept[start + size :]
            runs += 1
            if fails(without):
                kept, has_shrunk = without, True
            else:
                start += size
        if size == 1 and not has_shrunk:
            break
        size = max(1, size // 2)
    return kept


def require_agreement(
    make: Callable[..., Simulation], seeds: Iterable[int], shown: Collection[str] = ("crashes",), **options: Any
) -> Counter[str]:
    """No run differs from its model, and together they have shown all of this; how often each thing was seen."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        verdict = make(seed, **options).run()
        assert not verdict.faults, f"seed {seed}: {shrunk(partial(make, seed, **options))}"
        seen += verdict.seen + Counter(crashes=verdict.crashes)
    missing = sorted(set(shown) - set(seen))
    assert not missing, f"the seeds have shown nothing of {missing}"
    return seen


def is_found_out(make: Callable[..., Simulation], seeds: Iterable[int], **options: Any) -> bool:
    """Whether a run differs from its model."""
    return any(make(seed, **options).run().faults for seed in seeds)


def main(about: str | None, runs: Mapping[str, Callable[[int], Run]]) -> int:
    """Run and print; the exit code is 1 if any run has a fault. A seed can be run again with --first."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    asked = parser.parse_args()
    seen: Counter[str] = Counter()
    faults = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        for name, make in runs.items():
            verdict = make(seed).run()
            seen += verdict.seen
            if verdict.faults:
                faults += 1
                _say(f"\n{name} of seed {seed}: {_explained(partial(make, seed), verdict, faults)}\n")
        _say(f"\rseed {seed}")
    _say(f"\n{', '.join(f'{name} {count}' for name, count in sorted(seen.items()))}\n")
    _say(f"{asked.seeds} seeds: {faults} runs differ\n")
    return 1 if faults else 0


def _say(words: str) -> None:
    sys.stdout.write(words)
    sys.stdout.flush()


def _explained(make: Any, verdict: Judged, faults: int) -> str:
    if isinstance(verdict, Verdict) and faults <= MOST_SHRUNK:
        return shrunk(make)
    return "\n".join(verdict.faults)

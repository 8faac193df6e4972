"""`semel serve` with a fault in its commit path: `python -m tests.harness.serve_with_faults serve [OPTION]...`.

The server, its options and its variables are those of `semel serve`. What is added is a function that the engine calls
at each named point of the commit path, once the server is ready: what the start itself commits is spared. Variables say
what the function does, and the server never sees them:

- SEMEL_CRASH_POINT: kill the process with SIGKILL at this point, on average once in SEMEL_CRASH_ONE_IN passes (100);
- SEMEL_CRASH_FILE: kill the process at the point whose name is in this file, once the file is there. The process that
  dies renames the file to `*.taken` first, so that one process dies even where several nodes look at one file;
- SEMEL_COMMIT_DELAY_MS: delay each durable commit by this time;
- SEMEL_CLOCK_AT_MS: the wall clock is at this time when the process starts, in milliseconds since 1970;
- SEMEL_CLOCK_FILE: add the milliseconds in this file, 0 without one, to the wall clock of the machine;
- SEMEL_CRASH_MOVE: kill the process at this step of the first move of keys out of memory, one of `MOVE_STEPS`;
- SEMEL_DECISION_FAULT_FILE: while this file is there, every decision raises, on the plain path too.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semel.engine.engine import POINTS, nowhere

if TYPE_CHECKING:
    from semel.server.process import Announce
    from semel.server.settings import ServerSettings
    from semel.server.settings_loader import SettingsSource
    from semel.store.protocol import Lock, Store, Tx

POINT, ONE_IN, ORDER, DELAY = "SEMEL_CRASH_POINT", "SEMEL_CRASH_ONE_IN", "SEMEL_CRASH_FILE", "SEMEL_COMMIT_DELAY_MS"
CLOCK = "SEMEL_CLOCK_AT_MS"
CLOCK_FILE = "SEMEL_CLOCK_FILE"
DECISION = "SEMEL_DECISION_FAULT_FILE"
MOVE = "SEMEL_CRASH_MOVE"
VARIABLES = (POINT, ONE_IN, ORDER, DELAY, CLOCK, CLOCK_FILE, MOVE, DECISION)
MOVE_STEPS = ("nothing written", "entries written", "boundary written", "committed", "memory changed")

LINGER_SECONDS = 0.04

Reach = Callable[[str], None]


def has_fault(env: Mapping[str, str]) -> bool:
    """Whether a server with this environment is to be started here."""
    return any(name in env for name in VARIABLES)


def crash_at(point: str, one_in: int, seed: int | None = None, linger_seconds: float = 0.0) -> Reach:
    """A function that kills this process at the point, on average once in `one_in` passes.

    It lingers there before: an answer that was sent too early has the time to leave, so that its loss is seen.
    """
    if point not in POINTS:
        raise ValueError(f"there is no crash point {point!r}; there are {', '.join(POINTS)}")
    chance = random.Random(seed)

    def reach(passed: str) -> None:
        if passed == point and chance.randrange(one_in) == 0:
            time.sleep(linger_seconds)
            os.kill(os.getpid(), signal.SIGKILL)

    return reach


def crash_on_order(order: Path) -> Reach:
    """A function that kills this process at the point that a file names, once the file is there."""

    def reach(passed: str) -> None:
        with suppress(FileNotFoundError):  # there is no order, or another process was quicker to take it
            if order.read_text() == passed:
                order.rename(order.with_suffix(".taken"))
                os.kill(os.getpid(), signal.SIGKILL)

    return reach


def fault_of(variables: Mapping[str, str]) -> Reach:
    """The fault that the variables name."""
    if ORDER in variables:
        return crash_on_order(Path(variables[ORDER]))
    if POINT in variables:
        return crash_at(variables[POINT], int(variables.get(ONE_IN, "100")), linger_seconds=LINGER_SECONDS)
    return nowhere


def set_clock(at_ms: int) -> None:
    """Let the wall clock of this process go on from a time."""
    from semel.engine.clock import SystemWorld  # noqa: PLC0415 - tests import this module without the server

    ahead_ms = at_ms - time.time_ns() // 1_000_000
    real = SystemWorld.wall_ms
    SystemWorld.wall_ms = lambda self: real(self) + ahead_ms  # type: ignore[method-assign]


def follow_clock(file: Path) -> None:
    """Let the wall clock of this process be wrong by the milliseconds in a file; by none without the file."""
    from semel.engine.clock import SystemWorld  # noqa: PLC0415 - tests import this module without the server

    real = SystemWorld.wall_ms

    def wrong(self: SystemWorld) -> int:
        return real(self) + (int(file.read_text()) if file.exists() else 0)

    SystemWorld.wall_ms = wrong  # type: ignore[method-assign]


def break_decisions(file: Path) -> None:
    """Let every decision of this process raise while a file is there."""
    from semel.engine import batch, plain_batch  # noqa: PLC0415 - tests import this module without the server

    def breaking(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            if file.exists():
                raise RuntimeError("a planted fault")
            return real(*arguments)

        return run

    batch._Batch._decide_with_reruns = breaking(batch._Batch._decide_with_reruns)  # type: ignore[method-assign]
    plain_batch.plain_rows = breaking(plain_batch.plain_rows)  # type: ignore[attr-defined]


def die_in_move(step: str) -> None:
    """Let this process die at a step of its first move of keys out of memory."""
    from semel.store.sqlite import log_changes, log_directory, moved_keys  # noqa: PLC0415 - as above

    has_moved = False

    def die_if(reached: str) -> None:
        if has_moved and reached == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(real: Callable[..., Any], before: str, after: str) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            nonlocal has_moved
            has_moved = has_moved or real is move
            die_if(before)
            found = real(*arguments)
            die_if(after)
            return found

        return run

    move, store, apply = log_changes.LogPart.move, moved_keys.MovedKeys._store, log_directory.LogDirectory.apply
    log_changes.LogPart.move = dying(move, MOVE_STEPS[0], "")  # type: ignore[method-assign]
    moved_keys.MovedKeys._store = dying(store, *MOVE_STEPS[1:3])  # type: ignore[method-assign]
    log_directory.LogDirectory.apply = dying(apply, *MOVE_STEPS[3:])  # type: ignore[method-assign]


class FaultyRun:
    """Runs a server as `run_server` does, with a fault from the moment that it is ready."""

    def __init__(self, fault: Reach, delay_seconds: float = 0.0) -> None:
        self._fault = fault
        self._delay_seconds = delay_seconds
        self._is_ready = False

    def __call__(
        self,
        settings: ServerSettings,
        announce: Announce,
        warnings: Iterable[str],
        reread: SettingsSource,
    ) -> int:
        """Run until told to stop; the exit code."""
        from semel.server import namespaces, process  # noqa: PLC0415 - tests import this module without the server

        if self._delay_seconds:
            namespaces.open_store = self._on_a_slow_disk(namespaces.open_store)  # type: ignore[attr-defined]

        def arm(port: int, in_force: ServerSettings) -> None:
            announce(port, in_force)
            self._is_ready = True

        return process.run_server(settings, arm, warnings, reread, self._reach)

    def _on_a_slow_disk(self, open_store: Callable[..., Store]) -> Callable[..., Store]:
        """Open a store whose durable commits take longer, in whichever thread they run."""

        def opened(*arguments: Any, **options: Any) -> Store:
            store = open_store(*arguments, **options)
            begin = store.begin

            def begun(locks: Sequence[Lock], *, durable: bool = True, wait: bool = True) -> Tx:
                tx = begin(locks, durable=durable, wait=wait)
                if durable:
                    tx.commit = self._slow(tx.commit)  # type: ignore[method-assign]
                return tx

            store.begin = begun  # type: ignore[method-assign]
            return store

        return opened

    def _slow(self, commit: Callable[[], Any]) -> Callable[[], Any]:
        def committed() -> Any:
            if self._is_ready:
                time.sleep(self._delay_seconds)
            return commit()

        return committed

    def _reach(self, point: str) -> None:
        if self._is_ready:
            self._fault(point)


def main() -> None:
    """Be `semel serve`, with the fault."""
    from semel.cli.serve import serve_command  # noqa: PLC0415

    given = {name: os.environ.pop(name) for name in VARIABLES if name in os.environ}
    command, *arguments = sys.argv[1:]
    assert command == "serve", "no other command has a commit path"
    if CLOCK in given:
        set_clock(int(given[CLOCK]))
    if CLOCK_FILE in given:
        follow_clock(Path(given[CLOCK_FILE]))
    if MOVE in given:
        die_in_move(given[MOVE])
    if DECISION in given:
        break_decisions(Path(given[DECISION]))
    delay = 0.0 if ORDER in given or POINT in given else int(given.get(DELAY, "0")) / 1_000
    serve_command(FaultyRun(fault_of(given), delay))(arguments, prog_name="semel serve")


if __name__ == "__main__":
    main()

"""The commit path: queue, lock, load, decide, flush, sync, answer, wake readers.

`submit` returns an answer only after the commit that holds it is on disk. The queue is bounded by count and bytes; when
it is full the caller is refused at once and nothing was stored. Every durable change of every surface takes this path,
including the chores of the sweeper.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from operator import attrgetter
from threading import Lock as Mutex
from time import monotonic
from typing import Any, TypeVar
from zlib import crc32

from semel.engine.back_pressure import NO_PRINCIPAL, InFlightError, QueueShare, ShareFullError
from semel.engine.batch_runner import MAX_TRIES, BatchLimits, BatchRunner, WriteProgress
from semel.engine.caller import WaitingCaller
from semel.engine.clock import DecisionClock
from semel.engine.commit_placement import CommitPlacement, CommitThread
from semel.engine.contract import EngineError, NotStoredError, Order, OverloadedError, UnavailableError, Write
from semel.engine.group_commit import BatchResult, Commit, Observer, QueuedWrite, SilentObserver
from semel.engine.lane import ThreadLane
from semel.engine.loop_lane import LoopLane
from semel.engine.notification import CommitNotifier
from semel.engine.plain_write import PlainWrite
from semel.engine.reading import Reading
from semel.engine.soft_changes import SoftChanges
from semel.engine.surroundings import Surroundings
from semel.kernel.clock import World
from semel.store.protocol import Changes, Lock, Store, StoreError, Touch, TryAgainError
from semel.store.usage import StoreUsage

T = TypeVar("T")
_IS_GONE: Callable[[Any], bool] = attrgetter("has_left")
_UNREADABLE = "The store cannot be read at the moment."


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Limits of the write queue and of one batch."""

    waiting_writes: int = 4_096
    waiting_bytes: int = 256 * 1024 * 1024
    batch: BatchLimits = field(default_factory=BatchLimits)
    principal_share: float = 1.0
    """The fraction of the waiting writes, and of their bytes, that one principal may hold."""


POINTS = ("gathered", "locked", "loaded", "decided", "flushed", "committed", "answered")
"""The crash points of the commit path, in order. The engine calls its `reach` with the name at each of them."""


def nowhere(point: str) -> None:
    """The `reach` of a server: it does nothing. Tests pass a function that delays a commit or kills the process."""


CommitWatcher = Callable[[Changes | None], None]
"""Called with the changes of a commit; with None if they are not known as a whole."""


class Engine:
    """The engine of one process. It runs on one event loop; lanes and readers use threads of their own."""

    def __init__(
        self,
        store: Store,
        world: World,
        limits: EngineLimits | None = None,
        observer: Observer | None = None,
        reach: Callable[[str], None] = nowhere,
        on_loop: CommitThread | None = None,
    ) -> None:
        """With `on_loop` the event loop writes to the store, which must be local; else threads do."""
        self.limits = limits or EngineLimits()
        self.signals = CommitNotifier()
        self.soft = SoftChanges()
        self.failure: BaseException | None = None
        self.failed = asyncio.Event()
        self.waiting_writes = 0
        self.waiting_bytes = 0
        self.most_waiting = 0
        self.share_refusals = 0
        """Writes that were refused because their principal held its whole share of the queue."""
        share = self.limits.principal_share
        self.shares = QueueShare(int(self.limits.waiting_writes * share), int(self.limits.waiting_bytes * share))
        self.in_flight_refusals = 0
        """Writes that were refused because their principal had as many waiting writes as its quota allows."""
        self._store = store
        self._stopped = False
        self.observer = observer or SilentObserver()
        self._timekeeper = DecisionClock(world, self.observer, is_shared=store.is_shared)
        self._admitted: Counter[Order] = Counter()
        self._admitted_guard = Mutex()
        self._readers = ThreadPoolExecutor(store.readers, thread_name_prefix="semel-reader")
        self._measurer = ThreadPoolExecutor(1, thread_name_prefix="semel-usage")  # readers may all wait for the store
        self._loop = asyncio.get_running_loop()
        self._error_id: Callable[[], str] = lambda: world.random_bytes(8).hex()
        self._openings: list[Write] = []
        around = Surroundings(
            store=store,
            soft=self.soft,
            timekeeper=self._timekeeper,
            observer=self.observer,
            error_id=self._error_id,
            is_admitted=lambda order: order in self._admitted,
            reach=reach,
            openings=self._openings,
        )
        self._lanes: list[ThreadLane | LoopLane] = []
        self._commit_watchers: list[CommitWatcher] = []
        if on_loop is None:
            self._lanes += [self._thread_lane(around) for _ in range(store.lanes)]
        else:
            self._lanes.append(self._loop_lane(around, CommitPlacement(on_loop)))
        for lane in self._lanes:
            lane.start()
        store.follow(self._hear)

    async def submit(self, write: Write, caller: WaitingCaller | None = None) -> Any:
        """Execute a write; returns its answer after the commit is on disk."""
        return await self.admit(write, caller)

    async def open(self, write: Write) -> Any:
        """Submit a write that belongs to the start: until it is stored, no other write of this process changes a row.

        Raises `NoWritesError` if the store takes no writes now; then call this again with the same object.
        """
        if not any(one is write for one in self._openings):
            self._openings.append(write)
        answer = await self.submit(write)
        self._openings[:] = [one for one in self._openings if one is not write]
        return answer

    def admit(self, write: Write, caller: WaitingCaller | None = None) -> asyncio.Future[Any]:
        """Queue a write; writes under the same locks are decided in the order in which they were admitted."""
        caller = caller or WaitingCaller()
        self._check_room(write.size, caller.principal)
        caller.future = self._loop.create_future()
        caller.admitted_at = monotonic()
        submission = QueuedWrite(write, caller)
        self._enter_queue(write.size, caller.principal)
        if submission.order is not None:
            with self._admitted_guard:
                self._admitted[submission.order] += 1
        self._lane_of(submission.locks).put(submission)
        return caller.future

    def admit_plain(self, write: PlainWrite) -> None:
        """Queue a plain write, which is settled after its commit.

        Plain writes under one lock are decided in the order in which they were admitted, and after the writes for the
        full rules that were admitted before them. A later write for the full rules may be decided first: a caller that
        needs an order between the two waits for the answer, or leaves both to the full rules.
        """
        self._check_room(write.size, write.principal)
        self._put_plain(write)

    def change_queue(self, writes: int, size: int, share: float) -> None:
        """Set other limits of the queue; what waits stays."""
        self.limits = replace(self.limits, waiting_writes=writes, waiting_bytes=size, principal_share=share)
        self.shares.change(int(writes * share), int(size * share))

    @property
    def oldest_write_seconds(self) -> float:
        """The age of the oldest write that waits for its commit; 0 if none waits."""
        return max(0.0, monotonic() - min(lane.waiting_since for lane in self._lanes))

    async def usage(self) -> StoreUsage:
        """What the store takes and how far its replicas are behind, as far as it can tell."""
        return await self._loop.run_in_executor(self._measurer, self._store.usage)

    def offer_plain(self, write: PlainWrite) -> bool:
        """As `admit_plain`, but False instead of an error if the queue has no room or the engine has stopped."""
        is_taken = self._refusal(write.size, write.principal) is None
        if is_taken:
            self._put_plain(write)
        return is_taken

    def _put_plain(self, write: PlainWrite) -> None:
        write.admitted_at = monotonic()
        self._enter_queue(write.size, write.principal)
        lane = self._lanes[0] if len(self._lanes) == 1 else self._lane_under(write.lock)
        lane.put_plain(write)

    def _check_room(self, size: int, principal: str) -> None:
        """Raise the refusal of a write, and count it if the caller's share of the queue is full."""
        refusal = self._refusal(size, principal)
        if refusal is not None:
            self.share_refusals += isinstance(refusal, ShareFullError)
            self.in_flight_refusals += isinstance(refusal, InFlightError)
            raise refusal

    def _refusal(self, size: int, principal: str) -> EngineError | None:
        """Why a write cannot be admitted: the engine has stopped, or the queue or the caller's share of it is full."""
        if self._stopped or self.failure is not None:
            return NotStoredError("The server is stopping; nothing was stored.")
        limits = self.limits
        if self.waiting_writes >= limits.waiting_writes or (
            self.waiting_bytes + size > limits.waiting_bytes and self.waiting_writes
        ):
            return OverloadedError("Too many writes are waiting; nothing was stored.")
        return None if principal == NO_PRINCIPAL else self.shares.refusal(principal, size)

    def _enter_queue(self, size: int, principal: str) -> None:
        self.waiting_writes += 1
        self.waiting_bytes += size
        if principal != NO_PRINCIPAL:
            self.shares.add(principal, size)
        if self.waiting_writes > self.most_waiting:
            self.most_waiting = self.waiting_writes

    def touch(self, touches: Iterable[Touch]) -> None:
        """Record soft changes of a reader: they are stored within about a second, and the caller does not wait."""
        self.soft.touch(touches)

    async def read(self, look: Callable[[Reading], T]) -> T:
        """Run a function on the rows of one instant, in a reader thread."""
        return await self._loop.run_in_executor(self._readers, self._look, look)

    def _look(self, look: Callable[[Reading], T]) -> T:
        for _ in range(MAX_TRIES):
            try:
                return self._look_once(look)
            except TryAgainError as error:
                self.observer.store_failure(error)
            except StoreError as error:
                raise UnavailableError(_UNREADABLE) from error
        raise UnavailableError(_UNREADABLE)

    def _look_once(self, look: Callable[[Reading], T]) -> T:
        with self._store.read() as snapshot:
            return look(Reading(snapshot, self.soft, self._timekeeper.now(snapshot.now_ms)))

    def watch_commits(self, watcher: CommitWatcher) -> None:
        """Call `watcher` on the event loop after every durable commit of this process, before any caller is answered.

        It must return quickly. If it raises, it is called with None, which must not raise. Commits of soft changes are
        not announced.
        """
        self._commit_watchers.append(watcher)

    @property
    def sees_all_commits(self) -> bool:
        """Whether `watch_commits` announces every commit to the store, and in order: no other process writes to it."""
        return not self._store.is_shared and len(self._lanes) == 1

    @property
    def is_settled(self) -> bool:
        """Whether every commit so far was announced: no other thread writes, and no commit has failed."""
        lane = self._lanes[0]
        return isinstance(lane, LoopLane) and not lane.is_busy and self.failure is None

    async def leads(self) -> bool:
        """Whether this node is the leader and runs the chores."""
        return await self._loop.run_in_executor(self._readers, self._store.leads)

    async def era(self) -> bytes:
        """Identifies the history of the rows; empty if every start is a new history."""
        return await self._loop.run_in_executor(self._readers, self._store.era)

    def writing(self, locks: Iterable[Lock]) -> WriteProgress:
        """The health of writes under these locks, on this node."""
        lane = self._lane_of(locks)
        return WriteProgress(lane.runner.lost, lane.runner.running_ms)

    @property
    def is_shared(self) -> bool:
        """Whether other nodes may use the store too."""
        return self._store.is_shared

    @property
    def is_away(self) -> bool:
        """Whether the store cannot be reached at the moment."""
        return self._store.is_away

    async def stop(self) -> None:
        """Finish admitted writes, then close the store."""
        self._stopped = True
        for lane in self._lanes:
            await lane.stop()
        await asyncio.sleep(0)
        self._readers.shutdown(wait=True)
        self._measurer.shutdown(wait=False, cancel_futures=True)
        self._store.close()

    def _thread_lane(self, around: Surroundings) -> ThreadLane:
        runner = BatchRunner(around, self.limits.batch, _IS_GONE, self._deliver)
        lane = ThreadLane(around, self.limits.batch, runner, lambda error: self._call(self._stop_for_good, lane, error))
        return lane

    def _loop_lane(self, around: Surroundings, placement: CommitPlacement) -> LoopLane:
        def deliver(result: BatchResult) -> None:
            if lane.is_apart:
                self._deliver(result)
            else:
                self._settle(result)
                self._resolve(result)

        runner = BatchRunner(around, self.limits.batch, _IS_GONE, deliver)
        lane = LoopLane(around, self.limits.batch, runner, lambda error: self._stop_for_good(lane, error), placement)
        return lane

    def _lane_of(self, locks: Iterable[Lock]) -> ThreadLane | LoopLane:
        if len(self._lanes) == 1:
            return self._lanes[0]
        return self._lane_under(min((lock.name for lock in locks if not lock.shared), default=b""))

    def _lane_under(self, lock: bytes) -> ThreadLane | LoopLane:
        """The lane of the writes whose first exclusive lock is this one."""
        return self._lanes[crc32(lock) % len(self._lanes) if len(self._lanes) > 1 else 0]

    def _deliver(self, result: BatchResult) -> None:
        """Called in a lane's thread: settle sequences at once, then pass the answers to the event loop."""
        self._settle(result)
        self._call(self._resolve, result)

    def _settle(self, result: BatchResult) -> None:
        for submission, _ in (*result.decided, *result.failed):
            if submission.order is not None:
                self._forget_order(submission.order)

    def _forget_order(self, order: Order) -> None:
        with self._admitted_guard:
            self._admitted[order] -= 1
            if not self._admitted[order]:
                del self._admitted[order]

    def _resolve(self, result: BatchResult) -> None:
        if result.commit is Commit.DURABLE:
            for watcher in self._commit_watchers:
                self._announce(watcher, result.changes)
        topics: dict[bytes, None] = dict.fromkeys(result.plain_topics)
        for write, answer in result.plain:
            self._leave_queue(write.size, write.principal)
            try:  # as `_tell`
                write.settle(answer)
            except Exception as error:  # noqa: BLE001 - the write is decided; only its answer is lost
                self.observer.fault(self._error_id(), error)
        for submission, outcome in result.decided:
            self._leave_queue(submission.write.size, submission.sender.principal)
            self._tell(submission.sender.settle, outcome.answer)
            for topic in outcome.signals:
                topics[topic] = None
            for write in outcome.follow_ups:
                self._follow(write)
        for submission, failure in result.failed:
            self._leave_queue(submission.write.size, submission.sender.principal)
            self._tell(submission.sender.fail, failure)
        if topics:
            self.signals.send(topics)

    def _announce(self, watcher: CommitWatcher, changes: Changes | None) -> None:
        """Tell a watcher of a commit. One that fails drops what it holds: the commit is on disk, and is answered."""
        try:
            watcher(changes)
        except Exception as error:  # noqa: BLE001 - memory alone is at fault
            self.observer.fault(self._error_id(), error)
            watcher(None)

    def _tell(self, tell: Callable[[Any], None], what: Any) -> None:
        """Answer one caller; what goes wrong with it must not keep the others from their answers."""
        try:
            tell(what)
        except Exception as error:  # noqa: BLE001 - the write is decided; only its answer is lost
            self.observer.fault(self._error_id(), error)

    def _leave_queue(self, size: int, principal: str) -> None:
        self.waiting_writes -= 1
        self.waiting_bytes -= size
        if principal != NO_PRINCIPAL:
            self.shares.remove(principal, size)

    def _hear(self, topics: Sequence[bytes] | None) -> None:
        """Called in a thread of the store: another node, or another program, has committed."""
        for watcher in self._commit_watchers:
            self._call(watcher, None)
        if topics is None:
            self._call(self.signals.send_all)
        elif topics:
            self._call(self.signals.send, topics)

    def _follow(self, write: Write) -> None:
        task = self._loop.create_task(self.submit(write))
        task.add_done_callback(_ignore_refusal)

    def _stop_for_good(self, lane: ThreadLane | LoopLane, error: BaseException) -> None:
        self.failure = error
        self.failed.set()
        lane.abandon()

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


def _ignore_refusal(task: asyncio.Task[Any]) -> None:
    # The sweeper finds a follow-up again that could not be stored now.
    if not task.cancelled() and task.exception() is not None and not isinstance(task.exception(), EngineError):
        raise RuntimeError("a follow-up write failed") from task.exception()

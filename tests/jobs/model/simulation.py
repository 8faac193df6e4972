"""The real rules through the real engine on a store in memory, with a clock that is moved by hand, against the model.

Chance comes from one seed, and nothing else decides: a seed is a run that can be repeated. Each step sends one command
or a few at once, moves the clock, sweeps, or arms a crash at a named point of the commit path; the next engine then
goes on with the rows as they are, and the client that heard nothing repeats itself. Every answer is compared with the
model's, and so are the rows, now and then and at the end, with the counts that are kept beside them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from functools import partial
from math import ceil
from typing import Any, NamedTuple

from semel.engine.contract import EngineError, Write
from semel.engine.engine import POINTS
from semel.engine.generations import GENERATION
from semel.engine.sweep import Sweeper
from semel.kernel.verdict import NEVER
from semel.store.memory import MemoryStore
from semel.store.protocol import Range
from semel.surfaces.jobs import commands as real
from semel.surfaces.jobs.contract import JobContract
from semel.surfaces.jobs.limits import JobBounds, JobPolicy
from semel.surfaces.jobs.maintenance_commands import CancelMembers, PromoteJobs, ReapLeases, RenewLeases
from semel.surfaces.jobs.tables import JOB, LEASED, TABLES, JobRow
from tests.engine.toy import ToyWorld
from tests.harness import simulation as harness
from tests.harness.simulation import STORED_AFTER, Processes
from tests.jobs.model.model import Ask, Filter, Job, Model, Place, Said, Single
from tests.jobs.model.rows import differences, jitter_of, params_of, serial_of, told_of

FOR_EVER = 2**62
WORKER_PRINCIPAL = b"workers"
PRINCIPALS, PAYLOADS = ("ann", "bob"), ("p1", "p1", "p1", "p2")
KINDS, QUEUES, WORKERS, CLAIMS = ("a", "b"), ("q1", "q2", "q3"), ("w1", "w2"), ("", "", "c1", "c2", "c3")
ACTIVE = ("scheduled", "queued", "leased")
FOREIGN, MISSING = -1, 2**40
"""A lease and a job that never were."""
STEPS = 400
ROWS = 100_000


class Move(NamedTuple):
    """One command, what the model makes of it, and whether a client that heard nothing would say it again."""

    command: Any
    expect: Callable[[], Any]
    is_repeatable: bool = True


def random_policy(chance: random.Random) -> JobPolicy:
    """Settings under which limits are met all the time."""
    policy = JobPolicy(
        key_ttl_ms=chance.choice((1_000, 5_000, 60_000)),
        generated_ttl_ms=chance.choice((600, 3_000, 20_000)),
        max_records=chance.choice((0, 3, 6, 25)),
        max_records_each=chance.choice((0, 0, 2, 12)),
        evicts=chance.random() < 0.5,
        retention_ms=chance.choice((0, 2_000, 100_000)),
        queued=JobBounds(chance.choice((0, 3, 8)), chance.choice((0, 0, 4)), chance.choice((0, 0, 3))),
        scheduled=JobBounds(chance.choice((0, 2, 6)), chance.choice((0, 0, 2)), chance.choice((0, 0, 2))),
        principal_share=chance.choice((1.0, 0.5, 0.34)),
        max_inflight=chance.choice((0, 2, 5)),
        offer_ms=chance.choice((0, 700, 2_000)),
        waiting_ttl_ms=chance.choice((0, 0, 3_000)),
        backoff_base_ms=500,
        backoff_cap_ms=2_000,
        jitter=chance.choice((0.0, 0.1)),
        lists_dead=chance.random() > 0.1,
        max_dead=chance.choice((1, 3, 1_000)),
    )
    # So few that generated keys of unfinished jobs alone may reach their limit.
    beyond = chance.choice((1, 2, 3, 50)) - sum((policy.queued.all, policy.scheduled.all, policy.max_inflight))
    return policy._replace(max_generated_ended=beyond)


class Simulation(harness.Simulation):
    """One run."""

    def __init__(self, seed: int, steps: int = STEPS, only: Collection[int] | None = None) -> None:
        super().__init__(seed, steps, only)
        self._policy = random_policy(self._chance)._replace(is_idempotent=seed % 10 != 0)
        self._keys = [f"k{number}" for number in range(self._chance.choice((4, 4, 40)))]
        self._world = ToyWorld(1_760_000_000_000)
        self._contract = JobContract(self._policy)
        self._store = MemoryStore((GENERATION, *TABLES), self._world.wall_ms)
        self._processes = Processes(self._store, self._world)
        self._model = Model(self._policy, self._vary)
        self._model.steady = self._world.wall
        self._serials = 0
        self._ids: dict[int, bytes] = {}
        self._tokens: dict[tuple[int, int], bytes] = {}
        self._said: list[Callable[[], Move]] = []
        """Reports that were made before and may be made again."""

    async def _start(self) -> None:
        self._processes.start()

    async def _stop(self) -> None:
        await self._processes.stop()

    # -- Steps --------------------------------------------------------------------------------------------------------

    async def _step(self, number: int) -> None:
        draw = self._chance.random()
        if draw < 0.2:
            self._pass_time()
        elif draw < 0.23:
            self._look_at_the_clock()
            await Sweeper(self._processes.engine, [self._contract], 1).sweep(self._contract)
            self._model.sweep()
        elif draw < 0.30:
            await self._crash(self._move())
        else:
            await self._together([self._move() for _ in range(self._chance.choice((1, 1, 1, 2, 5)))])

    def _pass_time(self) -> None:
        """A little, or exactly to where something changes, or just before it; sometimes the wall clock steps."""
        model, chance = self._model, self._chance
        waits = [job.ready - model.now for job in model.all("waiting") if job.ready < NEVER]
        waits += [job.until - model.steady for job in model.all("leased")]
        waits += [
            ceil((1 - bucket.tokens(model.steady)) * bucket.per_ms / bucket.count) for bucket in model.buckets.values()
        ]
        waits += [record.expires - model.now for _, record in model.live_records() if record.expires]
        waits += [job.window_until - model.now for job in model.jobs.values()]
        ahead = [wait for wait in waits if wait > 0]
        ms = chance.choice(ahead) - chance.choice((0, 1)) if ahead and chance.random() < 0.6 else chance.randrange(800)
        self._world.pass_ms(ms)
        model.steady += ms
        if chance.random() < 0.1:
            self._world.wall += chance.choice((-5_000, -300, 300, 5_000))

    def _look_at_the_clock(self) -> None:
        """A decision is about to be made: time as it is told never falls."""
        self._model.now = max(self._model.now, self._world.wall)

    async def _together(self, moves: list[Move]) -> None:
        """Send them at once; they are decided in this order, in one batch or in several."""
        self._look_at_the_clock()
        answers = await self._processes.submit_all(Write(self._contract, move.command) for move in moves)
        for move, answer in zip(moves, answers, strict=True):
            self._compare(move, answer)

    async def _crash(self, move: Move) -> None:
        """Send one command to an engine that is to die at a point; then the next engine, and the command again."""
        self._look_at_the_clock()
        point = self._chance.choice(POINTS)
        self._processes.arm(point)
        answer = await self._processes.submit(Write(self._contract, move.command))
        has_died = await self._processes.stop()
        if not isinstance(answer, EngineError):
            self._compare(move, answer)
        elif point in STORED_AFTER:
            move.expect()
        self._verdict.crashes += has_died
        self._require(has_died or not isinstance(answer, BaseException), f"{answer!r} without a crash")
        # Lease time goes on from where it was: what a rate limit makes of one that falls is told by its own tests.
        self._world.wall = max(self._world.wall, self._model.now, self._model.steady)
        self._processes.start()
        await self._renew()
        if move.is_repeatable and self._chance.random() < 0.8:
            self._where += " again"
            await self._together([move])

    async def _renew(self) -> None:
        """What a server does before it listens: every lease gets its time again."""
        ids = tuple(row.id for row in self._rows() if row.phase == LEASED)
        await self._processes.engine.submit(Write(self._contract, RenewLeases(ids, None)))
        self._model.restart(self._world.wall)

    def _rows(self) -> list[JobRow]:
        with self._store.read() as snapshot:
            return list(snapshot.range(Range(JOB, "", (), ROWS)))

    # -- Comparing ----------------------------------------------------------------------------------------------------

    def _compare(self, move: Move, answer: Any) -> None:
        if isinstance(answer, BaseException):
            return self._require(False, f"{move.command} raised {answer!r}")
        expected = move.expect()
        told = told_of(answer, self._model.now, expected)
        what = f"{move.command}\n  was told {told}\n  expected {expected}\n  under {self._policy}"
        self._require(told == expected, what)
        for lease in answer.leases if isinstance(answer, real.JobsClaimed) else ():
            self._tokens[serial_of(lease.job.id), lease.job.epoch] = lease.token
        for name in _kinds(move.command, expected):
            self._verdict.seen[name] += 1
        return None

    async def _compare_all(self) -> None:
        for difference in differences(self._store, self._model):
            self._require(False, f"{difference}\n  under {self._policy}")

    def _vary(self, job: Job, delay_ms: int) -> int:
        """Jitter belongs to the job's id; it stays within its share, and never goes above the cap."""
        varied = jitter_of(self._policy, self._id(job.serial), job.attempt)
        share = round(delay_ms * self._policy.jitter) + 1
        self._require(abs(varied - delay_ms) <= share, f"{delay_ms} ms became {varied}")
        self._require(varied <= self._policy.backoff_cap_ms, f"{varied} ms is above the cap")
        return varied

    # -- Moves --------------------------------------------------------------------------------------------------------

    def _move(self) -> Move:
        moves = [self._submit] * 6 + [self._claim] * 5 + [self._report] * 6 + [self._repeat] * 3 + [self._reap] * 2
        moves += [self._defer, self._heartbeat, self._heartbeat, self._use_step, self._cancel, self._requeue]
        moves += [self._release, self._limit, self._outside, self._promote, self._close, self._cancel_members]
        return self._chance.choice(moves)()

    def _ask(self) -> Ask:
        chance = self._chance
        self._serials += 1
        payload = chance.choice(PAYLOADS)
        place = self._place() if chance.random() < 0.3 else None
        single = self._single() if place is None and chance.random() < 0.3 else None
        start = chance.choice(("", "", "delay_ms", "run_at"))
        if (single is not None and single.debounces) or (place is not None and place.joins):
            start = ""
        ask = Ask(
            self._serials,
            chance.choice(PRINCIPALS),
            chance.choice(self._keys) if chance.random() < 0.8 and not (place and place.name) else "",
            payload,
            chance.choice(KINDS) if payload == "p2" else "a",
            chance.choice(QUEUES),
            chance.choice((0, 4, 4, 9)),
            delay_ms=chance.randrange(1, 3_000) if start == "delay_ms" else single.delay_ms if single else 0,
            run_at=self._world.wall + chance.choice((-50, 900)) if start == "run_at" else None,
            max_attempts=chance.choice((1, 2, 3)),
            lease_ms=chance.choice((1_000, 3_000)),
            timeout_ms=chance.choice((None, None, 0, 600, 2_500)),
            revives=chance.random() < 0.3,
            given=frozenset({"queue", "priority", "max_attempts", "lease_sec", "timeout_ms", "generated_key", start}),
            single=single,
            place=place,
        )
        return ask._replace(generated=bool(ask.key) and chance.random() < 0.4)

    def _place(self) -> Place:
        """A join, a member, a child of a job that runs or has run, or several of these."""
        chance = self._chance
        draw = chance.random()
        joins = chance.random() < 0.3 or draw < 0.3
        size = chance.choice((0, 1, 2, 3)) if joins else 0
        place = Place(joins=joins, size=size, cancels=joins and chance.random() < 0.4)
        if draw < 0.3:
            return place
        if draw < 0.7:
            groups = [job.serial for job in self._model.jobs.values() if job.held and job.phase == "waiting"]
            return place._replace(of=chance.choice([*groups[-4:], *groups[-4:], *list(self._model.jobs)[-2:], MISSING]))
        serial, epoch, _, _ = self._lease()
        return place._replace(of=serial or MISSING, epoch=epoch, name=chance.choice(("c1", "c2", "c3")))

    def _single(self) -> Single:
        chance = self._chance
        if chance.random() < 0.4:
            delay_ms = chance.choice((1, 400, 1_500))
            max_ms = delay_ms + chance.choice((0, 600)) if chance.random() < 0.5 else 0
            return Single(chance.choice(("d1", "d2")), debounces=True, delay_ms=delay_ms, max_ms=max_ms)
        states = chance.choice((ACTIVE, ACTIVE, ("queued",), (*ACTIVE, "completed"), ("failed", "completed")))
        return Single(chance.choice(("u1", "u2")), frozenset(states), chance.choice((0, 0, 500, 4_000)))

    def _submit(self) -> Move:
        asks = [self._ask() for _ in range(self._chance.choice((1, 1, 1, 1, 3)))]
        command = real.SubmitJobs(tuple(_draft(ask, self._group_place(ask)) for ask in asks))
        is_safe = self._policy.is_idempotent and all(ask.key for ask in asks)
        return Move(command, lambda: tuple((self._model.submit(ask), self._model.noted) for ask in asks), is_safe)

    def _group_place(self, ask: Ask) -> real.GroupPlace | None:
        place = ask.place
        if place is None:
            return None
        of = self._id(place.of) if place.of else b""
        token = self._tokens.get((place.of, place.epoch), b"nobody's") if place.name else b""
        return real.GroupPlace(of, token, place.name, place.joins, place.size, place.cancels)

    def _close(self) -> Move:
        joins = [job.serial for job in self._model.jobs.values() if job.waits_for_others]
        serial = self._chance.choice([*joins[-6:], *list(self._model.jobs)[-1:], 0])
        command = real.CloseGroup(self._id(serial), b"", True)
        return Move(command, lambda: (self._model.close(serial), self._model.noted))

    def _cancel_members(self) -> Move:
        marked = [job.serial for job in self._model.jobs.values() if job.cancelling]
        serial = self._chance.choice([*marked, 0])

        def expect() -> tuple[None, tuple[str, ...]]:
            self._model.cancel_members(serial)
            return None, self._model.noted

        return Move(CancelMembers(self._id(serial), b"", 1_000), expect)

    def _claim(self) -> Move:
        chance = self._chance
        asked = Filter(
            chance.choice(WORKERS),
            chance.choice((1, 1, 2, 10)),
            chance.choice(((), (), ("a",), ("a", "b"))),
            chance.choice(((), (), ("q1",), ("q2", "q3"))),
            chance.choice((None, None, 500, 9_000)),
            chance.choice(CLAIMS),
        )
        if not asked.queues:
            asked = asked._replace(reach=chance.choice((None, None, ("q1", "q3"))))
        asked = asked._replace(waits=chance.random() < 0.4)
        command = real.ClaimJobs(
            principal=WORKER_PRINCIPAL,
            worker=asked.worker.encode(),
            most=asked.most,
            kinds=tuple(kind.encode() for kind in asked.kinds),
            queues=tuple(queue.encode() for queue in asked.queues),
            reach=None if asked.reach is None else tuple((queue.encode(), False) for queue in asked.reach),
            lease_ms=asked.lease_ms,
            claim=asked.claim.encode(),
            reap_until=FOR_EVER,
            asked_at=self._world.wall,
            secret=b"a secret of the store",
            waits=asked.waits,
        )
        return Move(command, lambda: (self._model.claim(asked), self._model.noted), bool(asked.claim))

    def _lease(self) -> tuple[int, int, bytes, bytes]:
        """A job and a token: mostly one that is held, sometimes an old one, sometimes nobody's."""
        chance, model = self._chance, self._model
        held = [(job.serial, job.epoch) for job in model.all("leased") if (job.serial, job.epoch) in self._tokens]
        known = held if held and chance.random() < 0.75 else list(self._tokens)
        if not known or chance.random() < 0.03:
            serial = chance.choice([*model.jobs, 0])
            return serial, FOREIGN, self._id(serial), chance.randbytes(16)
        serial, epoch = chance.choice(known[-40:])
        return serial, epoch, self._id(serial), self._tokens[serial, epoch]

    def _id(self, serial: int) -> bytes:
        """The id of a job; one that was never there has none that is known."""
        if serial not in self._ids:
            self._ids |= {serial_of(row.id): row.id for row in self._rows()}
        return self._ids.get(serial, serial.to_bytes(16, "big"))

    def _report(self) -> Move:
        chance = self._chance
        lease = self._lease()
        said = Said(
            chance.random() < 0.5,
            f'{{"code":"c{chance.randrange(2)}"}}',
            chance.random() < 0.8,
            chance.choice((None, None, 0, 700)),
            chance.random() < 0.05,
        )
        self._said.append(lambda: self._said_again(lease, said._replace(is_flawed=False)))
        return self._said_again(lease, said)

    def _said_again(self, lease: tuple[int, int, bytes, bytes], said: Said, *, is_foreign: bool = False) -> Move:
        serial, epoch, job_id, token = lease
        command = real.JobReport(
            id=job_id,
            token=None if is_foreign else token,
            ok=said.ok,
            value=said.value.encode(),
            digest=f"{said.call} {said.value}".encode(),
            retryable=said.retryable,
            retry_after_ms=said.after_ms,
            flaw="sha_mismatch" if said.is_flawed else "",
            is_foreign=is_foreign,
        )
        return Move(command, lambda: (self._model.report(serial, epoch, said), self._model.noted))

    def _outside(self) -> Move:
        """A report without a token, on a job that nobody may have claimed."""
        serial = self._chance.choice([*self._model.jobs, 0])
        said = Said(self._chance.random() < 0.7, f'{{"code":"c{self._chance.randrange(2)}"}}')
        return self._said_again((serial, 0, self._id(serial), b""), said, is_foreign=True)

    def _repeat(self) -> Move:
        """Something that a worker said before, again."""
        return self._chance.choice(self._said[-6:])() if self._said else self._report()

    def _defer(self) -> Move:
        lease, delay_ms, waits = self._lease(), self._chance.choice((0, 800)), self._chance.random() < 0.5
        self._said.append(lambda: self._deferred(lease, delay_ms, waits=waits))
        return self._deferred(lease, delay_ms, waits=waits)

    def _deferred(self, lease: tuple[int, int, bytes, bytes], delay_ms: int, *, waits: bool) -> Move:
        serial, epoch, job_id, token = lease
        command = real.DeferJob(job_id, token, delay_ms, f"{delay_ms} {waits}".encode(), waits)
        return Move(command, lambda: (self._model.defer(serial, epoch, delay_ms, waits=waits), self._model.noted))

    def _heartbeat(self) -> Move:
        serial, epoch, job_id, token = self._lease()
        command = real.JobHeartbeat(job_id, token, None)
        return Move(command, lambda: (self._model.heartbeat(serial, epoch), self._model.noted))

    def _use_step(self) -> Move:
        (serial, epoch, job_id, token), chance = self._lease(), self._chance
        key, result = chance.choice(("s1", "s2")), chance.choice((None, f"{chance.randrange(99)}"))
        command = real.JobStep(job_id, token, key.encode(), None if result is None else result.encode())
        return Move(command, lambda: (self._model.step(serial, epoch, key, result), self._model.noted))

    def _cancel(self) -> Move:
        chance = self._chance
        serial = chance.choice([*list(self._model.jobs)[-8:], 0])
        principal, force = chance.choice((*PRINCIPALS, None)), chance.random() < 0.4
        owner, members = b"somebody else" if principal is None else principal.encode(), chance.random() < 0.3
        command = real.CancelJob(self._id(serial), owner, principal is None, force, members)
        cancel = partial(self._model.cancel, serial, principal, force=force, with_members=members)
        return Move(command, lambda: (cancel(), self._model.noted))

    def _requeue(self) -> Move:
        failed = [job.serial for job in self._model.all("done") if job.reason]
        serial = self._chance.choice([*failed, *failed, *self._model.jobs, 0])
        command = real.RequeueJob(self._id(serial), "admin")
        return Move(command, lambda: (self._model.requeue(serial), self._model.noted), is_repeatable=False)

    def _release(self) -> Move:
        principal, key = self._chance.choice(PRINCIPALS), self._chance.choice(self._keys)
        force = self._chance.random() < 0.2
        command = real.ReleaseKey(principal.encode(), key.encode(), key, force)
        return Move(command, lambda: (self._model.release(principal, key, force=force), self._model.noted))

    def _limit(self) -> Move:
        queue, most = self._chance.choice(QUEUES), self._chance.choice((None, 0, 1, 2))
        timeout_ms = self._chance.choice((0, 1_500, None))
        rate = self._chance.choice((None, (0, 0), (1, 400), (3, 1_000), (7, 100)))
        command = real.LimitQueue(queue.encode(), most, timeout_ms, None if rate is None else real.RateLimit(*rate))
        return Move(command, lambda: (self._model.limit(queue, most, timeout_ms, rate), ()))

    def _promote(self) -> Move:
        return Move(PromoteJobs(1_000, FOR_EVER), lambda: (self._model.promote(), ()))

    def _reap(self) -> Move:
        return Move(ReapLeases(1_000, FOR_EVER), lambda: (self._model.reap(), self._model.noted))


def _draft(ask: Ask, place: real.GroupPlace | None) -> real.JobDraft:
    start = f"{ask.delay_ms} {ask.run_at}" if ask.delay_ms or ask.run_at is not None else ""
    return real.JobDraft(
        principal=ask.principal.encode(),
        key=ask.key.encode(),
        key_prefix=ask.key,
        payload_hash=ask.payload.encode().ljust(32),
        kind=ask.kind.encode(),
        params=params_of(ask.payload).encode(),
        queue=ask.queue.encode(),
        priority=ask.priority,
        client=b"",
        start=start.encode(),
        delay_ms=ask.delay_ms,
        run_at=ask.run_at,
        max_attempts=ask.max_attempts,
        lease_ms=ask.lease_ms,
        retries_failed=ask.revives,
        given=ask.given,
        chance=ask.serial.to_bytes(8, "big"),
        timeout_ms=-1 if ask.timeout_ms is None else ask.timeout_ms,
        single=None if ask.single is None else _single(ask.single),
        place=place,
        is_generated=ask.generated and bool(ask.key),
    )


def _single(single: Single) -> real.SingleRule:
    times = (single.states, single.for_ms, single.debounces, single.delay_ms, single.max_ms)
    return real.SingleRule(single.key.encode(), single.key, *times)


def _kinds(command: Any, expected: Any) -> list[str]:
    """Names for what was seen: the command with the kind of its answer, and what would be audited."""
    pairs = expected if isinstance(command, real.SubmitJobs) else (expected,)
    name = type(command).__name__
    found = []
    for answer, events in pairs:
        if answer is None or isinstance(answer, str | bool):
            found.append(f"{name} {answer}")
        else:
            kind = getattr(answer, "rule", getattr(answer, "code", type(answer).__name__))
            found.append(f"{name} {kind}{' again' if getattr(answer, 'dedup', False) else ''}")
        found += events
    return found

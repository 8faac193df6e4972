"""The express decisions of jobs beside the rules: the same requests give the same answers and the same rows.

Two stores run the same batches. One decides plain submissions, claims and completions by `decide_plain`, the other
every write by the rules, in the order in which the first one has decided. Between these batches both run other
commands: failures, deferrals, cancellations, heartbeats, revivals, reaps, limits of queues, named and filtered claims.
`python -m tests.jobs.rules.differential --cases 1000000` runs as many writes as you like.
"""

from __future__ import annotations

import random
from collections import Counter
from hashlib import sha256
from typing import Any

from semel.engine.batch import run, steps_of
from semel.engine.contract import Write
from semel.engine.group_commit import QueuedWrite, drive
from semel.engine.plain_write import PlainWrite
from semel.surfaces.jobs import commands as real
from semel.surfaces.jobs.contract import JobContract
from semel.surfaces.jobs.limits import JobBounds, JobPolicy
from semel.surfaces.jobs.maintenance_commands import CancelMembers, PromoteJobs, ReapLeases
from semel.surfaces.jobs.rules.completion import MISSING
from semel.surfaces.jobs.rules.links import links_of
from semel.surfaces.jobs.rules.plain_batch import plain_write
from semel.surfaces.jobs.rules.plain_submission import PlainJobSubmit
from semel.surfaces.jobs.tables import JOB, TABLES
from tests.engine.toy import ToyWorld
from tests.harness.beside import Side, compare_steps, main

STEPS = 60
PRINCIPALS = (b"ann", b"ben")
QUEUES, KINDS = (b"default", b"mail"), (b"k", b"send")
KEYS = tuple(b"key-%d" % number for number in range(10))
SECRET = b"s" * 32
LARGE = b'{"a":"%s"}' % (b"x" * 1_200)


def random_policy(chance: random.Random) -> JobPolicy:
    """Settings whose limits are met now and then."""
    policy = JobPolicy(
        is_idempotent=chance.random() < 0.9,
        key_ttl_ms=3_000,
        generated_ttl_ms=1_000,
        retention_ms=chance.choice((1_000, 10_000)),
        max_records=chance.choice((0, 25, 60)),
        max_records_each=chance.choice((0, 0, 12)),
        evicts=chance.random() < 0.3,
        queued=JobBounds(chance.choice((0, 15, 40)), chance.choice((0, 0, 9)), chance.choice((0, 0, 10))),
        principal_share=chance.choice((1.0, 1.0, 0.5)),
        max_inflight=chance.choice((0, 6, 30)),
        lease_ms=2_000,
        waiting_ttl_ms=chance.choice((0, 0, 4_000)),
        max_attempts=chance.choice((1, 3)),
        reap_grace_ms=chance.choice((0, 500)),
    )
    beyond = chance.choice((8, 25)) - sum((policy.queued.all, policy.scheduled.all, policy.max_inflight))
    return policy._replace(max_generated_ended=beyond)


class Comparison:
    """Runs batches on both sides and compares them."""

    def __init__(self, seed: int, policy: JobPolicy | None = None) -> None:
        self._chance = chance = random.Random(seed)
        self._world = ToyWorld()
        self._jobs = JobContract(policy or random_policy(chance))
        self._fast, self._full = Side(TABLES, self._world), Side(TABLES, self._world)
        self._leases: list[real.JobLease] = []
        self._groups: list[bytes] = []
        """The joins of groups."""
        self._is_odd = False
        """Whether the present batch has writes that are not plain."""
        self.writes = 0
        self.express: Counter[str] = Counter()

    def step(self) -> None:
        """One batch of writes that may be plain, or of others."""
        chance = self._chance
        if chance.random() < 0.4:
            self._world.pass_ms(chance.choice((1, 10, 300, 1_000, 3_000)))
        if chance.random() < 0.25:
            others = [QueuedWrite(Write(self._jobs, self._other())) for _ in range(chance.randrange(1, 4))]
            self._compare(others, [])
        self._is_odd = chance.random() < 0.2
        plain: list[PlainWrite] = []
        writes: list[QueuedWrite] = []
        for _ in range(chance.randrange(1, 16)):
            command = self._command()
            one = plain_write(self._jobs, command, 0)
            if one is None:
                writes.append(QueuedWrite(Write(self._jobs, command)))
            else:
                plain.append(one)
        self.writes += len(plain) + len(writes)
        if writes:  # they hold the lock of all jobs
            self._compare(writes + [QueuedWrite(one.full()) for one in plain], [])
        else:
            self._compare([], plain)

    def batch(self, *commands: real.SubmitJobs | real.ClaimJobs, line: object = None) -> None:
        """One batch of these commands, which must be plain, a millisecond later; on one connection if it has a line."""
        self._world.pass_ms(1)
        plain = [plain_write(self._jobs, command, 0) for command in commands]
        for one in plain:
            if isinstance(one, PlainJobSubmit):
                one.line = line
        self._compare([], [one for one in plain if one is not None])

    def submission(self, principal: bytes, queue: bytes) -> real.SubmitJobs:
        """A plain submission."""
        draft = self._draft()._replace(principal=principal, key=b"", queue=queue, priority=4)
        return real.SubmitJobs((draft,))

    def claim(self, most: int) -> real.ClaimJobs:
        """A plain claim."""
        return self._claim()._replace(most=most, waits=False, reap_until=0)

    def queues(self) -> list[bytes]:
        """The queues of all jobs, in the order of their submissions."""
        return [job.queue for _, job in sorted(self._fast.rows()[JOB].items())]

    def _compare(self, writes: list[QueuedWrite], plain: list[PlainWrite]) -> None:
        result = drive(steps_of(self._fast.around, writes, plain=plain))
        assert not result.failed, self._fast.faults
        assert not self._fast.faults
        for one, answer in result.plain:
            self.express[type(one).__name__] += 1
            self.express["many jobs"] += isinstance(one, PlainJobSubmit) and len(answer) > 1
        fast = [outcome.answer for _, outcome in result.decided] + [answer for _, answer in result.plain]
        order = [one.write for one, _ in result.decided] + [one.full() for one, _ in result.plain]
        topics = {topic for _, outcome in result.decided for topic in outcome.signals} | set(result.plain_topics)
        for one in result.left:
            later = run(self._fast.around, [QueuedWrite(one.write)])
            assert not later.failed, self._fast.faults
            fast += [outcome.answer for _, outcome in later.decided]
            topics |= {topic for _, outcome in later.decided for topic in outcome.signals}
            order.append(one.write)
        full, told = [], set()
        for write in order:
            alone = run(self._full.around, [QueuedWrite(write)])
            assert not alone.failed, self._full.faults
            full += [outcome.answer for _, outcome in alone.decided]
            told |= {topic for _, outcome in alone.decided for topic in outcome.signals}
        for one, other, write in zip(fast, full, order, strict=True):
            assert one == other, (write.command, one, other)
        assert topics == told
        ours, theirs = self._fast.rows(), self._full.rows()
        for table in TABLES:
            assert ours[table] == theirs[table], (table, set(ours[table].items()) ^ set(theirs[table].items()), order)
        for answer in fast:
            if isinstance(answer, real.JobsClaimed):
                self._leases += answer.leases
            for one in answer if isinstance(answer, tuple) else ():
                if isinstance(one, real.JobAdmitted) and links_of(one.job.links).joins:
                    self._groups.append(one.job.id)
        self._leases = self._leases[-40:]

    # ---- Commands that may be plain ----

    def _command(self) -> Any:
        kind = self._chance.random()
        if kind < 0.5 or not self._leases:
            return self._submission() if kind < 0.4 else self._claim()
        return self._report() if kind < 0.75 else self._claim()

    def _submission(self) -> real.SubmitJobs:
        """Mostly of one job; many jobs of one request have one principal."""
        drafts = [self._draft() for _ in range(self._chance.choice((*[1] * 10, 2, 3, 4)))]
        return real.SubmitJobs(tuple(draft._replace(principal=drafts[0].principal) for draft in drafts))

    def _draft(self) -> real.JobDraft:
        chance = self._chance
        is_odd = self._is_odd and chance.random() < 0.4
        key = chance.choice((b"", *KEYS)) if chance.random() < 0.5 else chance.randbytes(8)
        kind, params = chance.choice(KINDS), chance.choice((b"{}", b'{"a":1}')) if not is_odd else LARGE
        return real.JobDraft(
            principal=chance.choice(PRINCIPALS),
            key=key,
            key_prefix=key[:2].hex(),
            payload_hash=sha256(kind + params).digest(),
            kind=kind,
            params=params,
            queue=chance.choice(QUEUES),
            priority=chance.choice((4, 4, 1)),
            client=chance.choice((b"", b'{"a":1}')),
            start=b"",
            delay_ms=chance.choice((0, 400)) if is_odd else 0,
            run_at=None,
            max_attempts=chance.choice((1, 3)),
            lease_ms=chance.choice((1_000, 2_000)),
            retries_failed=chance.random() < 0.1,
            given=frozenset(("queue", "priority", "max_attempts", "client", "generated_key"))
            if chance.random() < 0.3
            else frozenset(),
            chance=chance.randbytes(8),
            timeout_ms=chance.choice((-1, -1, 0, 900)),
            single=self._single() if self._is_odd and chance.random() < 0.3 else None,
            place=self._place() if self._is_odd and chance.random() < 0.3 else None,
            is_generated=bool(key) and chance.random() < 0.5,
        )

    def _place(self) -> real.GroupPlace:
        """A join, a member of one, or a child of a leased job."""
        draw = self._chance.random()
        if draw < 0.5 and self._groups:
            return real.GroupPlace(self._chance.choice(self._groups[-4:]))
        if draw < 0.7 and self._leases:
            job, token = self._chance.choice(self._leases[-6:])
            return real.GroupPlace(job.id, token, self._chance.choice("ab"))
        return real.GroupPlace(joins=True, size=self._chance.choice((0, 1, 2)), cancels=draw > 0.9)

    def _single(self) -> real.SingleRule:
        chance = self._chance
        if chance.random() < 0.4:
            return real.SingleRule(b"d", "d", debounces=True, delay_ms=chance.choice((1, 300)), max_ms=500)
        states = frozenset(chance.choice((("queued", "leased"), ("queued", "leased", "completed"))))
        return real.SingleRule(b"u", "u", states, chance.choice((0, 5_000)))

    def _claim(self) -> real.ClaimJobs:
        chance = self._chance
        is_odd = self._is_odd and chance.random() < 0.4
        return real.ClaimJobs(
            principal=chance.choice(PRINCIPALS),
            worker=chance.choice((b"w1", b"w2")),
            most=chance.choice((1, 1, 3, 16)),
            kinds=chance.choice(((), KINDS[:1])) if is_odd else (),
            queues=chance.choice(((), QUEUES[:1])) if is_odd else (),
            reach=chance.choice((None, ((b"mail", False),))) if is_odd else None,
            lease_ms=chance.choice((None, 700)),
            claim=chance.choice((b"", b"c1", b"c2")) if is_odd else b"",
            reap_until=self._world.wall_ms() + chance.choice((0, 0, -500, 10_000)),
            asked_at=self._world.wall_ms(),
            secret=SECRET,
            waits=chance.random() < 0.3,
        )

    def _report(self) -> real.JobReport:
        chance = self._chance
        is_odd = self._is_odd and chance.random() < 0.4
        job, token = self._leases[-1 - int(chance.random() ** 2 * len(self._leases))]
        ok = not self._is_odd or chance.random() < 0.7
        value = chance.choice((b'{"ok":true}', b"1")) if not is_odd else LARGE
        if not ok:
            value = b'{"code":"c","message":"m"}'
        return real.JobReport(
            id=job.id if not is_odd else chance.choice((job.id, b"nobody")),
            token=token if not is_odd else chance.choice((token, None, b"t" * 16)),
            ok=ok,
            value=value,
            digest=sha256(value).digest(),
            error_code="" if ok else "c",
            error_message="" if ok else "m",
            retryable=chance.random() < 0.7,
            flaw=MISSING if is_odd and chance.random() < 0.2 else "",
            is_foreign=is_odd and chance.random() < 0.2,
        )

    # ---- Others ----

    def _other(self) -> Any:
        chance = self._chance
        now = self._world.wall_ms()
        kind = chance.randrange(12)
        if kind == 0:
            return ReapLeases(10, now)
        if kind == 1:
            rate = chance.choice((None, *[real.RateLimit(0, 0)] * 4, real.RateLimit(2, 1_000), real.RateLimit(7, 300)))
            limits = chance.choice((0, 0, 2, 5)), chance.choice((None, 0, 800)), rate
            return real.LimitQueue(chance.choice(QUEUES), *limits)
        if kind == 2:
            return PromoteJobs(10, now)
        if kind >= 8 and self._groups:
            group = chance.choice(self._groups[-6:])
            return real.CloseGroup(group, b"", True) if kind == 8 else CancelMembers(group, b"", 2)
        if not self._leases:
            return ReapLeases(10, now)
        job, token = chance.choice(self._leases)
        if kind == 3:
            return real.CancelJob(job.id, job.principal, True, chance.random() < 0.5)
        if kind == 4:
            return real.RequeueJob(job.id, "x")
        if kind == 5:
            return real.DeferJob(job.id, token, chance.choice((0, 500)), b"d")
        if kind == 6:
            return real.ReleaseKey(job.principal, job.key or b"k", "k", chance.random() < 0.5)
        job, token = chance.choice(self._leases[-6:])
        return real.JobHeartbeat(job.id, token, chance.choice((None, b"1", b"2")))


if __name__ == "__main__":
    main(__doc__, compare_steps(Comparison, STEPS, "writes"))

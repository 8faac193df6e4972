"""The real rules through the real engine on a store in memory, with a clock that is moved by hand, against the model.

Chance comes from one seed, and nothing else decides: a seed is a run that can be repeated. Each step sends one request
or several that are judged in one batch, changes settings, moves the clock, sweeps, or arms a crash at a named point of
the commit path; the next engine then goes on with the rows as they are, and the client that heard nothing repeats
itself. Every answer is compared with the model's, header and hashes included; and so is what can be read, now and then
and at the end.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from semel.engine.contract import EngineError, Write
from semel.engine.engine import POINTS
from semel.engine.generations import GENERATION
from semel.engine.sweep import MAX_ROUNDS
from semel.kernel import errors
from semel.kernel.clock import ClockPace, advance, start
from semel.kernel.errors import Refusal
from semel.store.memory import MemoryStore
from semel.surfaces.ledger import commands as real
from semel.surfaces.ledger.contract import LedgerContract
from semel.surfaces.ledger.limits import LedgerPolicy
from semel.surfaces.ledger.model import LedgerPlace, LedgerStatus
from semel.surfaces.ledger.tables import TABLES
from tests.engine.toy import ToyWorld
from tests.harness import simulation as harness
from tests.harness.simulation import STORED_AFTER, Processes
from tests.ledger.model.leftovers import leftovers
from tests.ledger.model.model import Ask, Model, Organization, Refused, Settings
from tests.ledger.model.requests import Requests
from tests.ledger.model.rows import command_of, differences, told_of, without_row

STEPS = 400
SLUGS = (7001, 7002)
NOTHING = real.FreePlace(LedgerPlace(1), 1)
"""A command that finds nothing to do."""


class Move(NamedTuple):
    """One command, what the model makes of it, and the request behind it, if a client would send it again."""

    command: Any
    expect: Callable[[], Any]
    ask: Ask | None = None


def random_policy(chance: random.Random) -> LedgerPolicy:
    """Settings under which streams are evicted all the time."""
    return LedgerPolicy(
        eviction_interval=chance.choice((1, 3, 7, 40)),
        ttl_seconds=chance.choice((2, 10, 60)),
        fence=chance.random() < 0.3,
        writes_per_second=chance.choice((0, 0, 0, 3)),
    )


class Simulation(harness.Simulation):
    """One run; without sweeps nothing is freed, so that the whole log can be read from the store."""

    compared_every = 20

    def __init__(
        self, seed: int, steps: int = STEPS, only: Collection[int] | None = None, *, sweeps: bool = True
    ) -> None:
        super().__init__(seed, steps, only)
        self._sweeps = sweeps
        self.policy = random_policy(self._chance)
        self._world = ToyWorld(1_760_000_000_000)
        self._contract = LedgerContract(self.policy)
        self.store = MemoryStore((GENERATION, *TABLES), self._world.wall_ms)
        self._processes = Processes(self.store, self._world)
        self.model = Model(self.policy.writes_per_second)
        self._requests = Requests(self._chance, self.model)
        self._pace: ClockPace | None = None
        self._slugs = 9000

    def sweep_at_last(self) -> None:
        """After a run without sweeps: free what may go."""
        asyncio.run(self._sweep_at_last())

    async def _sweep_at_last(self) -> None:
        self._processes.start()
        try:
            await self._carry_out_chores(lambda chore: not isinstance(chore, real.ExpireEntities))
        finally:
            await self._processes.stop()

    async def _end(self) -> None:
        await self._sweep()
        self._where = "at the end"
        if self._sweeps:
            for difference in leftovers(self.store, self.model):
                self._require(False, difference)
        await self._compare_all()
        for org in self.model.orgs.values():
            self._verdict.seen["evicted"] += org.evicted
            self._verdict.seen["forgotten"] += org.forgotten

    async def _start(self) -> None:
        """What a server does before it listens: another term."""
        self._pace = None
        self._processes.start()
        self._look_at_the_clock()
        await self._submit(Move(real.OpenTerm(b"", b"secret"), lambda: None))
        self.model.term += 1

    async def _stop(self) -> None:
        await self._processes.stop()

    async def _prepare(self) -> None:
        start = Settings(self.policy.eviction_interval, self.policy.ttl_seconds, self.policy.fence)
        for slug in SLUGS:
            now = self._look_at_the_clock()
            name = b"org %d" % slug
            await self._submit(Move(real.CreateOrg(name, (slug,), b"owner", b""), lambda: None))
            self.model.make_org(slug, name, start, now)
            for retain in (0, self._chance.choice((1, 3, 20))):
                await self._send([self._make_vault(slug, retain)])

    # -- Steps --------------------------------------------------------------------------------------------------------

    async def _step(self, number: int) -> None:
        draw = self._chance.random()
        if draw < 0.2:
            self._pass_time()
        elif draw < 0.22:
            await self._sweep()
        elif draw < 0.25:
            await self._crash(self._write())
        elif draw < 0.31:
            await self._send([self._settle()])
        elif draw < 0.4:
            await self._send_at_once([self._write() for _ in range(self._chance.randrange(2, 9))])
        else:
            await self._send([self._write()])

    def _pass_time(self) -> None:
        """A little, or to where something is exactly as old as may be, or a second more; sometimes the clock steps."""
        chance = self._chance
        org = chance.choice(list(self.model.orgs.values()))
        edges = [stream.last_seen + org.settings.ttl for stream in org.streams.values()]
        ahead = [edge * 1000 - self._world.wall for edge in edges if edge * 1000 > self._world.wall]
        if ahead and chance.random() < 0.6:
            ms = chance.choice(ahead) + chance.choice((-1, 0, 999, 1000))
        else:
            ms = chance.choice((1, 300, 1_000, chance.randrange(5_000)))
        self._world.pass_ms(max(0, ms))
        if chance.random() < 0.1:
            self._world.wall += chance.choice((-90_000, -5_000, -300, 300, 5_000, 59_000, 90_000))

    def _look_at_the_clock(self) -> int:
        """A decision is about to be made: time as the engine tells it, which never falls in one life of it."""
        wall, monotonic = self._world.wall, self._world.monotonic
        self._pace = advance(self._pace or start(wall, monotonic), wall, monotonic)
        return self._pace.expiry_ms

    async def _sweep(self) -> None:
        """Only the blocks that remove what has expired can be seen."""
        await self._carry_out_chores(lambda chore: self._sweeps or isinstance(chore, real.ExpireEntities))

    async def _carry_out_chores(self, is_due: Callable[[Any], bool]) -> None:
        for _ in range(MAX_ROUNDS):
            self._look_at_the_clock()
            chores = [one for one in await self._processes.engine.read(self._contract.chores) if is_due(one)]
            if not chores:
                return
            for chore in chores:
                done = await self._submit(Move(chore, lambda: None))
                if isinstance(chore, real.ExpireEntities):
                    expected = self.model.expire(*chore, self._now)
                    self._verdict.require(done == real.MaintenanceDone(expected), f"{chore} did {done}, not {expected}")
                    self._verdict.seen["expired"] += expected

    async def _send(self, moves: list[Move]) -> None:
        """One after the other."""
        for move in moves:
            self._compare(move, await self._submit(move))

    async def _submit(self, move: Move) -> Any:
        """What is refused at the door does not come to the engine, which then does not look at the clock either."""
        if isinstance(move.command, Refusal):
            return move.command
        self._look_at_the_clock()
        return await self._processes.submit(Write(self._contract, move.command))

    async def _send_at_once(self, moves: list[Move]) -> None:
        """All in one batch: the lane is held until they wait. Writes of one sequence are decided by their numbers."""
        self._look_at_the_clock()
        moves = [move for move in moves if not isinstance(move.command, Refusal)]
        writes = [Write(self._contract, move.command) for move in moves]
        answers = await self._processes.submit_all(writes, behind=Write(self._contract, NOTHING))
        for place in _in_order(moves):
            self._compare(moves[place], answers[place])

    async def _crash(self, move: Move) -> None:
        """Send one request to an engine that is to die at a point; then the next engine, and the request again."""
        point = self._chance.choice(POINTS)
        self._processes.arm(point)
        answer = await self._submit(move)
        has_died = await self._processes.stop()
        if not isinstance(answer, EngineError):
            self._compare(move, answer)
        elif point in STORED_AFTER:
            move.expect()
        self._verdict.crashes += has_died
        self._require(has_died or not isinstance(answer, BaseException), f"{answer!r} without a crash")
        if self._chance.random() < 0.3:
            self._world.wall -= self._chance.choice((100, 4_000))
        await self._start()
        if move.ask is not None and self._chance.random() < 0.8:
            self._where += " again"
            await self._send([self._asked(self._requests.again(move.ask))])

    # -- Comparing ----------------------------------------------------------------------------------------------------

    def _compare(self, move: Move, answer: Any) -> None:
        if isinstance(answer, BaseException):
            return self._require(False, f"{move.command} raised {answer!r}")
        expected = move.expect()
        told = told_of(move.command, answer)
        is_same = told == without_row(expected)
        if not is_same:
            what = f"{move.command}\n  was answered {told}\n  expected {expected}\n  {self.policy}"
            self._require(False, _brief(what))
        if move.ask is not None:
            self._verdict.seen["requests"] += 1
            name = getattr(expected, "row", "") or getattr(expected, "code", "")
            self._verdict.seen[name] += 1
        return None

    async def _compare_all(self) -> None:
        self._look_at_the_clock()
        try:
            found = await self._processes.engine.read(lambda look: list(differences(look, self.model, self._chance)))
        except (AssertionError, errors.Refused) as error:  # rows that a reader relies on are gone
            found = [f"nothing can be read: {error!r}"]
        for difference in found:
            self._require(False, f"{_brief(difference)}\n  {self.policy}")

    # -- Moves --------------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> int:
        assert self._pace is not None
        return self._pace.expiry_ms

    @property
    def _clock(self) -> int:
        """The clock that only goes on, whatever somebody sets: what a rate is judged by."""
        assert self._pace is not None
        return self._pace.steady_ms

    def _write(self) -> Move:
        return self._asked(self._requests.draw())

    def _asked(self, ask: Ask) -> Move:
        return Move(command_of(ask), lambda: self.model.write(ask, self._now, self._clock), ask)

    def _settle(self) -> Move:
        """Something about organizations or vaults; whatever takes no writes is soon made to take them again."""
        org = self._chance.choice(list(self.model.orgs.values()))
        stopped = [scope.place for scope in org.scopes.values() if scope.status == "READ_ONLY"]
        if org.status != "ACTIVE":
            return self._change_org(org, org.settings, LedgerStatus.ACTIVE)
        if stopped and self._chance.random() < 0.7:
            return self._change_vault(self._chance.choice(stopped), LedgerStatus.ACTIVE)
        vaults = [scope.place for scope in org.scopes.values() if scope.place.vault and scope.status == "ACTIVE"]
        draw = self._chance.random()
        if draw < 0.1 or not vaults:
            return self._make_vault(org.slug, self._chance.choice((0, 2)))
        if draw < 0.2:
            status = self._chance.choice((LedgerStatus.READ_ONLY, LedgerStatus.READ_ONLY, LedgerStatus.DELETED))
            is_spare = status is LedgerStatus.READ_ONLY or len(vaults) > 2
            return self._change_vault(self._chance.choice(vaults), status if is_spare else LedgerStatus.READ_ONLY)
        if draw < 0.25:
            return self._change_org(org, org.settings, LedgerStatus.SUSPENDED)
        return self._change_org(org, self._other_settings(org.settings), None)

    def _other_settings(self, settings: Settings) -> Settings:
        chance = self._chance
        settings = settings._replace(interval=chance.choice((settings.interval, 1, 2, 5, 30)))
        settings = settings._replace(ttl=chance.choice((settings.ttl, 1, 5, 20, 300)))
        return settings._replace(fence=chance.choice((settings.fence, settings.fence, not settings.fence)))

    def _change_org(self, org: Organization, settings: Settings, status: LedgerStatus | None) -> Move:
        changes = real.OrgSettings(*settings, status=status)
        name = org.status if status is None else status.name

        def expect() -> Any:
            self.model.change_org(org.slug, settings, name, self._now)
            return org.slug, org.entries

        return Move(real.ChangeOrg(org.slug, changes), expect)

    def _change_vault(self, place: LedgerPlace, status: LedgerStatus) -> Move:
        def expect() -> Any:
            self.model.change_vault(place, status.name, self._now)
            return place, status.name

        return Move(real.ChangeVault(place, status), expect)

    def _make_vault(self, slug: int, retain: int) -> Move:
        self._slugs += 1
        place = LedgerPlace(slug, self._slugs)

        def expect() -> Any:
            made = self.model.make_vault(place, retain, self._now)
            return made if isinstance(made, Refused) else (place, made)

        return Move(real.CreateVault(slug, (place.vault,), retain, b"owner", b""), expect)


def _brief(text: str) -> str:
    """Without the long runs of one letter that some keys and values are made of."""
    return re.sub(r"(\w)\1{20,}", r"\1...", text)


def _in_order(moves: list[Move]) -> list[int]:
    """Places in the order of decision: as they came, but writes of one stream change places until numbers rise."""
    order = list(range(len(moves)))
    streams: dict[tuple[LedgerPlace, bytes], list[int]] = {}
    for place, move in enumerate(moves):
        if move.ask is not None and move.ask.sequence is not None:
            streams.setdefault((move.ask.place, move.ask.client), []).append(place)

    def number(place: int) -> int:
        ask = moves[place].ask
        return ask.sequence or 0 if ask is not None else 0

    for places in streams.values():
        for place, taken in zip(places, sorted(places, key=number), strict=True):
            order[place] = taken
    return order

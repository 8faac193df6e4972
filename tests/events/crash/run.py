"""Kills of servers under a load of events: the simulation of the model with writers only, and its judgement."""

from __future__ import annotations

from collections.abc import Sequence

from tests.events.model.cast import writing_cast
from tests.events.model.simulation import Plan, Simulation
from tests.harness.crash.run import CrashPlan, Surface
from tests.harness.crash.verdict import Verdict
from tests.harness.crash.ways import Way

SECONDS_A_KILL = 0.6


class EventsUnderKills(Surface):
    """Every acknowledged id is there once, none is reused, and every retry is told the same."""

    shows = ("events", "submits sent again", "restarts")

    def make_urls(self) -> Sequence[str]:
        """The simulation has servers of its own."""
        return ()

    def turns(self) -> int:
        """One simulation."""
        return 1

    def way(self) -> Way:
        """That of the model."""
        return SimulatedKills(self.plan)


class SimulatedKills:
    """Half of the lives end by themselves, at a named point; the others are killed from outside."""

    def __init__(self, plan: CrashPlan) -> None:
        crashes = plan.kills // 2
        lives = Plan(plan.store, plan.kills * SECONDS_A_KILL, kills=plan.kills - crashes, crashes=crashes)
        report = plan.report
        self._simulation = Simulation(
            plan.folder, lives, plan.seed, writing_cast, lambda deaths: report(deaths, "killed")
        )

    def end(self, number: int) -> str:
        """Every life."""
        self._found = self._simulation.run()
        return str(self._found)

    def judge(self, verdict: Verdict) -> None:
        """What the model has found."""
        verdict.count("events", self._found.events)
        verdict.count("submits sent again", self._found.retries)
        verdict.count("restarts", self._found.deaths)
        verdict.faults += self._found.faults

"""Kill servers with SIGKILL under a load of transactions, again and again, and check what became of each.

Every other death of a server is its own, at a named point of the commit path, each in turn. `make crash SURFACE=ledger`
does as many as you like.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from semel.surfaces.ledger.model import LedgerPlace
from tests.harness.lives import PointLives
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.harness.together import faults_of, log_of
from tests.ledger.crash.client_writer import CALLS, DURABLE, ClientWriter
from tests.ledger.crash.reading import Reader
from tests.ledger.crash.verdict import Verdict, judge
from tests.ledger.crash.writer import BOTH, KEYS, SEQUENCES, Heard, LedgerLine, Order, Writer

RETAINED, VAULTS = 40, 2
CLIENTS = (
    (("seq", SEQUENCES), ("both", BOTH), ("keys", KEYS), ("keys", KEYS)),
    (("seq", SEQUENCES), ("keys", KEYS), ("calls", CALLS), ("durable", DURABLE)),
)
"""For each organization the writers of each of its places, by client and mode; two may share a stream. Some use the
Python client."""
ALIVE_SECONDS = (0.15, 0.6)
SETTINGS = {
    "SEMEL_LEDGER_GRPC_PORT": "0",
    "SEMEL_LEDGER_EVICTION_INTERVAL": "50",
    "SEMEL_SWEEP_INTERVAL_MS": "50",
}


@dataclass(frozen=True)
class Plan:
    """What happens; `seconds` is how long the load lasts before the first kill."""

    store: str = "sqlite"
    kills: int = 10
    nodes: int = 1
    seconds: float = 0.0


class CrashRun:
    """One store, many lives."""

    def __init__(self, folder: Path, plan: Plan, seed: int, report: Callable[[int], None] = lambda done: None) -> None:
        self._plan = plan
        self._folder = folder
        self._seed = seed
        self._chance = random.Random(seed)
        self._lives = PointLives(self._chance, (4, 12, 40))
        self._report = report
        self._quiet = 0
        store = fresh_url(lanes="2") if plan.store == "postgres" else ""
        env = SETTINGS | {"SEMEL_STORE": store}
        self._servers = [RunningServer(folder / f"node-{number}", env=env) for number in range(plan.nodes)]
        self._ports = [server.port for server in self._servers]
        self._retain: dict[LedgerPlace, int] = {}
        self._clients: dict[LedgerPlace, list[str]] = {}
        self._writers: list[Writer] = []

    def run(self) -> Verdict:
        """Start, kill, mend, judge."""
        with ExitStack() as running:
            for server in self._servers:
                running.enter_context(server)
            self._prepare()
            self._under_load()
            for server in self._servers:
                server.kill()
                server.start()
            verdict = self._judge()
        for server in self._servers:
            faults = faults_of(log_of(server))
            verdict.require(not faults, f"{faults[:3]} in {server.output_tail()}")
        verdict.require(not self._lives.missed, f"no server died at {self._lives.missed}: nothing was shown about that")
        return verdict

    def _prepare(self) -> None:
        """Two organizations with three places each, one of which keeps few bodies, and writers for all of them."""
        line = LedgerLine(self._ports, self._chance)
        for number, writers in enumerate(CLIENTS):
            made = line.hear("POST", "/ledger/v1/orgs", {"name": f"org-{number}"})
            places = {LedgerPlace(int(made.body["slug"]["slug"])): 0}
            for retain in (0, RETAINED):
                policy = {"mode": "BLOCK_RETENTION_MODE_COMPACTED", "retentionBlocks": str(retain)}
                body = {"retentionPolicy": policy} if retain else {}
                org = next(iter(places)).org
                made = line.hear("POST", f"/ledger/v1/orgs/{org}/vaults", body)
                places[LedgerPlace(org, int(made.body["vault"]["slug"]))] = retain
            for place, retain in places.items():
                self._retain[place] = retain
                self._clients[place] = sorted({client for client, _ in writers})
                for client, mode in writers:
                    name = f"w{len(self._writers)}"
                    writer = self._writer(place, client, mode, name)
                    writer.is_brief = not retain
                    self._writers.append(writer)
        line.close()

    def _writer(self, place: LedgerPlace, client: str, mode: str, name: str) -> Writer:
        if mode in (CALLS, DURABLE):
            return ClientWriter(place, client, mode, name, self._ports, self._seed, self._folder)
        return Writer(place, client, mode, name, self._ports, self._seed)

    def _under_load(self) -> None:
        stop = threading.Event()
        with ThreadPoolExecutor(len(self._writers)) as pool:
            loads = [pool.submit(writer.work, stop) for writer in self._writers]
            try:
                time.sleep(self._plan.seconds)
                for done in range(self._plan.kills):
                    before = self._progress()
                    self._one_kill(done)
                    self._quiet += self._progress() == before
                    self._report(done + 1)
            finally:
                stop.set()
            for load in loads:
                load.result()

    def _progress(self) -> int:
        """How many transactions have been answered."""
        return sum(len(order.answers) for writer in self._writers for order in tuple(writer.orders))

    def _one_kill(self, number: int) -> None:
        """Every other life dies by itself, at a named point; the rest are killed from outside."""
        time.sleep(self._chance.uniform(*ALIVE_SECONDS))
        server = self._chance.choice(self._servers)
        server.kill()
        if number % 2:
            self._lives.end_next(server)
        self._lives.start_next(server, number)

    def _judge(self) -> Verdict:
        orders = [order for writer in self._writers for order in writer.orders]
        with ThreadPoolExecutor(4) as pool:
            again = list(pool.map(self._repeat, [orders[start::4] for start in range(4)]))
        told: list[Heard] = [again[number % 4][number // 4] for number in range(len(orders))]
        reader = Reader(self._ports)
        chains = [reader.chain(place, retain, self._clients[place]) for place, retain in self._retain.items()]
        reader.close()
        verdict = judge(chains, orders, told, others=VAULTS)
        verdict.quiet = self._quiet
        verdict.lost_answers = sum(writer.lost for writer in self._writers)
        verdict.refused = sum(writer.refused for writer in self._writers)
        for writer in self._writers:
            verdict.faults += writer.faults[:10]
        return verdict

    def _repeat(self, orders: list[Order]) -> list[Heard]:
        """The same question once more, of a server that has seen nobody but the log."""
        line = LedgerLine(self._ports, random.Random(1))
        told = [line.hear("POST", *order.request()) for order in orders]
        line.close()
        return told

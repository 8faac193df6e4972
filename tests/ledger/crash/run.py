"""Kills of servers under a load of transactions: what became of each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from semel.surfaces.ledger.model import LedgerPlace
from tests.harness.crash.run import Client, CrashPlan, Surface
from tests.harness.crash.verdict import Verdict
from tests.ledger.crash.client_writer import CALLS, DURABLE, ClientWriter
from tests.ledger.crash.reading import Reader
from tests.ledger.crash.verdict import BLOCKS, EXPIRED, judge_ledger
from tests.ledger.crash.writer import BOTH, KEYS, SEQUENCES, Heard, LedgerLine, Order, Writer

RETAINED, VAULTS = 40, 2
CLIENTS = (
    (("seq", SEQUENCES), ("both", BOTH), ("keys", KEYS), ("keys", KEYS)),
    (("seq", SEQUENCES), ("keys", KEYS), ("calls", CALLS), ("durable", DURABLE)),
)
"""For each organization the writers of each of its places, by client and mode; two may share a stream. Some use the
Python client."""
LOST, REFUSALS = "answers lost", "refusals"
SETTINGS = {
    "SEMEL_LEDGER_GRPC_PORT": "0",
    "SEMEL_LEDGER_EVICTION_INTERVAL": "50",
    "SEMEL_SWEEP_INTERVAL_MS": "50",
}


class LedgerUnderKills(Surface):
    """Every acknowledged transaction is one block: none is missing, doubled or answered otherwise."""

    settings: ClassVar = SETTINGS
    one_in = (4, 12, 40)
    shows = (BLOCKS, REFUSALS, EXPIRED)
    shows_alone = (LOST,)

    def __init__(self, plan: CrashPlan) -> None:
        super().__init__(plan)
        self._retain: dict[LedgerPlace, int] = {}
        self._clients: dict[LedgerPlace, list[str]] = {}
        self._writers: list[Writer] = []

    def prepare(self) -> None:
        """Two organizations with three places each, one of which keeps few bodies, and writers for all of them."""
        line = LedgerLine(self.ports, self.chance)
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
            return ClientWriter(place, client, mode, name, self.ports, self.seed, self.plan.folder)
        return Writer(place, client, mode, name, self.ports, self.seed)

    def clients(self) -> Sequence[Client]:
        """The writers."""
        return [writer.work for writer in self._writers]

    def progress(self) -> int:
        """How many transactions have been answered."""
        return sum(len(order.answers) for writer in self._writers for order in tuple(writer.orders))

    def has_shown(self) -> bool:
        """Whether something was refused, and something will expire."""
        orders = [order for writer in self._writers for order in tuple(writer.orders) if order.answers]
        is_brief = any("brief" in str(operation) for order in orders for operation in order.operations)
        return is_brief and any(writer.refused for writer in self._writers)

    def judge(self, verdict: Verdict) -> None:
        """Ask everything once more, of servers that have seen nobody but the log, and read all blocks."""
        self.begin_again()
        orders = [order for writer in self._writers for order in writer.orders]
        with ThreadPoolExecutor(4) as pool:
            again = list(pool.map(self._repeat, [orders[start::4] for start in range(4)]))
        told: list[Heard] = [again[number % 4][number // 4] for number in range(len(orders))]
        reader = Reader(self.ports)
        chains = [reader.chain(place, retain, self._clients[place]) for place, retain in self._retain.items()]
        reader.close()
        judge_ledger(verdict, chains, orders, told, others=VAULTS)
        verdict.count(LOST, sum(writer.lost for writer in self._writers))
        verdict.count(REFUSALS, sum(writer.refused for writer in self._writers))
        for writer in self._writers:
            verdict.faults += writer.faults[:10]

    def _repeat(self, orders: list[Order]) -> list[Heard]:
        """The same question once more, of a server that has seen nobody but the log."""
        line = LedgerLine(self.ports, random.Random(1))
        told = [line.hear("POST", *order.request()) for order in orders]
        line.close()
        return told

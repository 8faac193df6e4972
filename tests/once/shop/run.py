"""A shop as its owner built it, whose parts are killed (-9) again and again, and what must be true in the end.

| part | is |
|---|---|
| web | FastAPI with a session that commits behind the handler, and the middleware |
| messages | `semel outbox run`: charges at the bank, and shipments as jobs |
| publisher | an outbox of events |
| worker | ships, in a transaction with the job's key |
| follower | writes a bill for each event, in a transaction with its cursor |
| semel | the server of jobs and events |
| postgres | the shop's own database |

Customers place orders over HTTP and repeat each request with its key until it is answered with success, then once more.
The bank alone is never killed; it honours keys. In the end each order must be there once, with one charge, one
shipment, one event and one bill, and every answer to one order must be the same.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg

from semel import once
from semel.client import Client, EventOutbox, TransactionCursor
from tests.harness.guardian import ROOT, guard
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import HOST, RunningServer, free_port
from tests.once.counter import CounterService, counting

CUSTOMERS = 4
PAUSE_SECONDS = (0.3, 1.5)
"""Between two kills."""
PATIENCE_SECONDS = 240.0
"""Until all is delivered behind the last kill: the leases of those who were killed end first."""
TABLES = """
CREATE TABLE orders (id serial, name text);
CREATE TABLE shipments (name text);
CREATE TABLE bills (name text);
"""


@dataclass
class ShopVerdict:
    """How it ended; both lists must be empty."""

    orders: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    """Orders that were answered in two ways."""

    @property
    def is_right(self) -> bool:
        """Whether nothing is lost, doubled or answered otherwise."""
        return self.orders > 0 and not (self.lost or self.doubled or self.answers)


class Part:
    """A process of the shop, which is started again whenever it has ended."""

    def __init__(self, name: str, command: Sequence[str], env: dict[str, str], folder: Path) -> None:
        self.name = name
        self._command, self._env = [sys.executable, *command], os.environ | env
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is None or self._process.poll() is not None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(self._command, cwd=ROOT, env=self._env, stdout=log, stderr=log)

    def kill(self) -> None:
        """As a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Shop:
    """All parts, and the bank."""

    def __init__(self, folder: Path, database: Cluster, semel: RunningServer, bank: CounterService) -> None:
        self.database, self.semel, self.bank = database, semel, bank
        self.url = f"http://{HOST}:{free_port()}"
        env = {"SHOP_DATABASE": database.url, "SHOP_BANK": bank.url, "SEMEL_URL": semel.url}
        web = [
            "-m",
            "uvicorn",
            "tests.once.shop.web:app",
            "--log-level",
            "warning",
            "--port",
            self.url.rpartition(":")[2],
        ]
        commands = {
            "web": web,
            "messages": ["-m", "semel", "outbox", "run", database.url, "--timeout", "3"],
            "publisher": ["-m", "tests.once.shop.publisher"],
            "worker": ["-m", "tests.once.shop.worker"],
            "follower": ["-m", "tests.once.shop.follower"],
        }
        self.parts = {name: Part(name, command, env, folder) for name, command in commands.items()}
        self._servers = threading.Lock()
        """Held while a server is down, so that nobody starts or kills it twice."""
        self._is_over = threading.Event()
        self._guardian = threading.Thread(target=self._guard, daemon=True)

    def open(self) -> None:
        """Create the tables, and start everything."""
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            for ddl in (TABLES, once.ddl(), once.outbox_ddl(), EventOutbox.ddl(), TransactionCursor.ddl()):
                connection.execute(ddl.encode())
        self._guardian.start()

    def _guard(self) -> None:
        """As systemd does."""
        while not self._is_over.is_set():
            for part in self.parts.values():
                part.start()
            self._is_over.wait(0.1)

    def kill(self, name: str) -> None:
        """Kill one part; a server is started again at once."""
        if name in self.parts:
            self.parts[name].kill()
            return
        with self._servers:
            if name == "semel":
                self.semel.kill()
                self.semel.start()
            else:
                self.database.kill()
                (self.database.data / "postmaster.pid").unlink(missing_ok=True)
                self.database.start()

    def kill_all(self) -> None:
        """Kill everything at once: a power cut."""
        with self._servers:
            self.semel.kill()
            self.database.kill()
            (self.database.data / "postmaster.pid").unlink(missing_ok=True)
            for part in self.parts.values():
                part.kill()
            self.database.start()
            self.semel.start()

    def close(self) -> None:
        """End the parts."""
        self._is_over.set()
        self._guardian.join()
        for part in self.parts.values():
            part.kill()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Look into the shop's database."""
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()

    def counts(self) -> dict[str, Counter[str]]:
        """How often each order is there, by what it left."""
        with Client(self.semel.url) as client:
            events = [event.id for event in client.events.follow("orders", live=False)]
        charges = [key.strip('"') for key in self.bank.effects]
        return {
            "order": Counter(name for (name,) in self.query("SELECT name FROM orders")),
            "charge": Counter(key.removeprefix("charge-") for key in charges),
            "shipment": Counter(name for (name,) in self.query("SELECT name FROM shipments")),
            "event": Counter(name.removeprefix("order-") for name in events),
            "bill": Counter(name.removeprefix("order-") for (name,) in self.query("SELECT name FROM bills")),
        }


class Customers:
    """Threads that place orders, each until it has succeeded."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._buy, args=(number,)) for number in range(CUSTOMERS)]
        self.placed: list[str] = []
        self.strange: list[str] = []
        self.retries = 0

    def start(self) -> None:
        """Open the doors."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish the orders that are under way."""
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _buy(self, customer: int) -> None:
        with httpx.Client(base_url=self._url, timeout=20) as client:
            number = 0
            while not self._is_over.is_set():
                name = f"{customer}-{number}"
                first = self._place(client, name)
                if self._place(client, name) != first:
                    self.strange.append(name)
                self.placed.append(name)
                number += 1
                time.sleep(0.05)

    def _place(self, client: httpx.Client, name: str) -> dict[str, Any]:
        """Repeat the request until it succeeds, as any client with a key does."""
        headers = {"Idempotency-Key": f"order-{name}", "X-User": "ada"}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            with suppress(httpx.HTTPError):
                answer = client.post("/orders", json={"order": name, "amount": 5}, headers=headers)
                if answer.status_code == 201:
                    found: dict[str, Any] = answer.json()
                    return found
            self.retries += 1
            time.sleep(0.1)
        raise AssertionError(f"the order {name} was not taken in {PATIENCE_SECONDS:.0f} s")


@contextmanager
def opened_shop(folder: Path) -> Iterator[Shop]:
    """A shop with its database, its bank and a Semel server."""
    guard()
    with Cluster() as database, counting() as bank, RunningServer(folder / "semel") as semel:
        shop = Shop(folder, database, semel, bank)
        shop.open()
        try:
            yield shop
        finally:
            shop.close()


def kill_parts(folder: Path, kills: int, seed: int) -> ShopVerdict:
    """Sell while parts are killed; every tenth kill is one of everything."""
    chance, verdict = random.Random(seed), ShopVerdict()
    with opened_shop(folder) as shop:
        customers = Customers(shop.url)
        customers.start()
        names: list[str] = []
        try:
            for number in range(kills):
                time.sleep(chance.uniform(*PAUSE_SECONDS))
                if not names:
                    names = [*shop.parts, "semel", "postgres"]
                    chance.shuffle(names)
                name = "everything" if number % 10 == 9 else names.pop()
                verdict.kills[name] += 1
                if name == "everything":
                    shop.kill_all()
                else:
                    shop.kill(name)
        finally:
            customers.stop()
        judge_shop(shop, customers, verdict)
    return verdict


def judge_shop(shop: Shop, customers: Customers, verdict: ShopVerdict) -> None:
    """Wait until all that was promised is there, and count."""
    wanted = Counter(customers.placed)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(wanted - counts for counts in shop.counts().values()) and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(1.0)  # what comes twice comes now
    verdict.orders, verdict.retries, verdict.answers = len(wanted), customers.retries, customers.strange
    for what, counts in shop.counts().items():
        verdict.lost += [f"{what} of {name}" for name in wanted - counts]
        verdict.doubled += [f"{what} of {name}" for name in counts - wanted]

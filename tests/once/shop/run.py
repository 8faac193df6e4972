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
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg

from semel import once
from semel.client import Client as SemelClient
from semel.client import EventOutbox, TransactionCursor
from tests.harness.crash.run import SQLITE, Client, Surface
from tests.harness.crash.verdict import Verdict
from tests.harness.crash.ways import Way
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
        with SemelClient(self.semel.url) as client:
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
        self.placed: list[str] = []
        self.strange: list[str] = []
        self.retries = 0

    def buy(self, customer: int, stop: threading.Event) -> None:
        """Place order after order, and finish the last one."""
        with httpx.Client(base_url=self._url, timeout=20) as client:
            number = 0
            while not stop.is_set():
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


class PartKills:
    """One part after the other, in a new order each time; every tenth kill is one of everything."""

    def __init__(self, shop: Shop, chance: random.Random) -> None:
        self._shop = shop
        self._chance = chance
        self._names: list[str] = []

    def end(self, number: int) -> str:
        """Kill a part, or all of them."""
        time.sleep(self._chance.uniform(*PAUSE_SECONDS))
        if number % 10 == 9:
            self._shop.kill_all()
            return "everything"
        if not self._names:
            self._names = [*self._shop.parts, "semel", "postgres"]
            self._chance.shuffle(self._names)
        name = self._names.pop()
        self._shop.kill(name)
        return name

    def judge(self, verdict: Verdict) -> None:
        """The shop knows it all."""


class ShopUnderKills(Surface):
    """An order, a charge, a shipment, an event and a bill for each request, whatever is killed."""

    kills = 40
    stores = (SQLITE,)
    shows = ("orders", "requests repeated")

    @property
    def running(self) -> AbstractContextManager[Any]:
        """The shop's database, and the bank."""
        return self._opened()

    @contextmanager
    def _opened(self) -> Iterator[None]:
        guard()
        with Cluster() as database, counting() as bank:
            self._shop = Shop(self.plan.folder, database, self.servers[0], bank)
            self._customers = Customers(self._shop.url)
            yield

    def prepare(self) -> None:
        """Open the doors."""
        self._shop.open()

    def close(self) -> None:
        """End the parts."""
        self._shop.close()

    def way(self) -> Way:
        """Not only servers are killed."""
        return PartKills(self._shop, self.chance)

    def clients(self) -> Sequence[Client]:
        """The customers."""
        return [partial(self._customers.buy, number) for number in range(CUSTOMERS)]

    def progress(self) -> int:
        """How many orders have been placed."""
        return len(self._customers.placed)

    def judge(self, verdict: Verdict) -> None:
        """Wait until all that was promised is there, and count."""
        wanted = Counter(self._customers.placed)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while any(wanted - counts for counts in self._shop.counts().values()) and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(1.0)  # what comes twice comes now
        verdict.count("orders", len(wanted))
        verdict.count("requests repeated", self._customers.retries)
        for name in self._customers.strange:
            verdict.blame(f"answered in two ways: {name}")
        for what, counts in self._shop.counts().items():
            for name in wanted - counts:
                verdict.blame(f"lost: {what} of {name}")
            for name in counts - wanted:
                verdict.blame(f"doubled: {what} of {name}")

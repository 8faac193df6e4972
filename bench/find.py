"""The look-up of a write by every identity, with many receipts: milliseconds of `POST /v1/writes/find`.

For each surface a store is filled in bulk, without a server, with receipts in a number of scopes (`find_rows`). Then a
server is started on it, and over one connection each identity (`find_ways`) is looked up, of known writes and of
unknown ones in turn.

    python -m bench find                                     # every surface on both stores; about 20 minutes
    python -m bench find --surfaces streams --only postgres --scopes 1000
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import machine
from bench.find_rows import SURFACES, fill, now_ms
from bench.find_ways import WAYS, AskedIdentity
from semel.store.open import open_store
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import HOST, RunningServer

WARM_UP = 20
"""The first look-ups of each way to ask are not counted."""


class FoundAnswer(NamedTuple):
    """One answer."""

    ms: float
    matches: int
    is_complete: bool


def asked(connection: http.client.HTTPConnection, body: dict[str, str]) -> FoundAnswer:
    """One look-up."""
    began = time.perf_counter()
    connection.request("POST", "/v1/writes/find", json.dumps(body))
    answer = connection.getresponse()
    facts = json.loads(answer.read())
    spent = (time.perf_counter() - began) * 1_000
    assert answer.status == 200, facts
    return FoundAnswer(spent, len(facts["writes"]), facts["complete"])


def measure(server: RunningServer, way: AskedIdentity, given: argparse.Namespace) -> str:
    """The line of one way to ask: known and unknown identities in turn."""
    answers: dict[bool, list[FoundAnswer]] = {True: [], False: []}
    with closing(http.client.HTTPConnection(HOST, server.port, timeout=60)) as connection:
        for turn in range(2 * (WARM_UP + given.rounds)):
            is_known = turn % 2 == 0
            number = random.randrange(given.receipts) + (0 if is_known else given.receipts)
            body = {"id": way.identity(number, given.scopes)}
            body |= {} if way.place is None else {"in": way.place(number, given.scopes)}
            answer = asked(connection, body)
            assert not is_known or answer.matches or not answer.is_complete, body
            answers[is_known].append(answer)
    parts = [told(answers[is_known][WARM_UP:]) for is_known in (True, False)]
    return f"{way.name:29} | {' | '.join(parts)}"


def told(answers: Sequence[FoundAnswer]) -> str:
    """Median, 99th percentile, and how many answers found something and were complete."""
    ordered = sorted(one.ms for one in answers)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    found = sum(one.matches > 0 for one in answers) / len(answers)
    complete = sum(one.is_complete for one in answers) / len(answers)
    return f"p50 {statistics.median(ordered):6.2f}, p99 {p99:6.2f}, found {found:4.0%}, complete {complete:4.0%}"


@contextmanager
def stores(only: str) -> Iterator[Sequence[str]]:
    """Templates of the URLs of stores to fill: they get a folder and the name of a surface."""
    with tempfile.TemporaryDirectory() as folder:
        sqlite = [f"sqlite:{folder}/%s"] if only in "sqlite" else []
        if only not in "postgres":
            yield sqlite
            return
        with Cluster() as cluster:
            yield [*sqlite, f"{cluster.url}?schema=find_%s"]


def main() -> None:
    """Fill and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--receipts", type=int, default=1_000_000)
    parser.add_argument("--scopes", type=int, default=10_000, help="streams, principals, places, gateways")
    parser.add_argument("--rounds", type=int, default=150, help="look-ups of each way to ask")
    parser.add_argument("--surfaces", nargs="*", default=list(SURFACES), choices=list(SURFACES))
    parser.add_argument("--only", default="", help="sqlite or postgres")
    given = parser.parse_args()
    with stores(given.only) as templates:
        for template in templates:
            for surface in given.surfaces:
                _measure_surface(template % surface, surface, given)
    for line in machine.facts():
        print(line)


def _measure_surface(url: str, surface: str, given: argparse.Namespace) -> None:
    began = time.monotonic()
    with closing(open_store(url, TABLES, MIGRATIONS, now_ms)) as store:
        fill(store, surface, given.receipts, given.scopes)
    kind, filled = url.partition(":")[0], f"filled in {time.monotonic() - began:.0f} s"
    print(f"{surface}, {kind}: {given.receipts:,} receipts in {given.scopes:,} scopes, {filled}", flush=True)
    print(f"{'':29} | known, ms | unknown, ms", flush=True)
    with (
        tempfile.TemporaryDirectory() as data,
        RunningServer(Path(data) / "data", env={"SEMEL_STORE": url}) as server,
    ):
        for way in WAYS[surface]:
            print(measure(server, way, given), flush=True)


if __name__ == "__main__":
    main()

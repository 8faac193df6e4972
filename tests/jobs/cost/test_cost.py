"""The cost of a batch of plain job calls: statements, syncs and pages of the log.

Nothing here is timed, so a busy machine changes nothing. The bounds have a margin; a change that exceeds one has made
every call dearer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.harness.counted_server import BatchCost, CountedServer, posted, status_of
from tests.harness.faulty_vfs import FaultyVfs

CONNECTIONS = 64
ROUNDS = 4
PARAMS = b'{"content":"' + b"x" * 186 + b'"}'


def submission(number: int) -> bytes:
    """A submission under a key of its own."""
    return posted("/v1/jobs", b'{"idempotency_key":"key-%012d","kind":"k","params":%b}' % (number, PARAMS))


def claim(number: int, most: int) -> bytes:
    """A claim of one worker."""
    return posted("/v1/jobs/claim", b'{"worker_id":"worker-%03d","max":%d}' % (number, most))


def completion(job: dict[str, Any]) -> bytes:
    """The completion of a claimed job."""
    token = job["lease_token"].encode()
    return posted(f"/v1/jobs/{job['job_id']}/complete", b'{"lease_token":"%b","result":{"ok":true}}' % token)


class CountedJobs(CountedServer):
    """A server with one batch of calls at a time."""

    numbers = 0

    async def batch(self, requests: Sequence[bytes]) -> list[dict[str, Any]]:
        """One request on each connection, all in one pass of the loop; the bodies of the answers."""
        self.count()
        answers = await self.send(requests)
        assert {status_of(answer) for answer in answers} == {200}, answers
        return [json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in answers]

    @property
    def cost(self) -> BatchCost:
        """An UPDATE that runs once for each row of a batch is one statement."""
        cost = super().cost
        return cost._replace(statements=[sql for sql, _ in groupby(cost.statements)])

    async def submit(self) -> list[dict[str, Any]]:
        """A batch of new jobs."""
        self.numbers += CONNECTIONS
        return await self.batch([submission(self.numbers - place) for place in range(CONNECTIONS)])


@asynccontextmanager
async def counted(folder: Path, vfs: FaultyVfs) -> AsyncIterator[CountedJobs]:
    """A server that is warm: jobs wait, and the heads of submissions, claims and completions are known."""
    server = CountedJobs(folder, vfs, CONNECTIONS)
    async with server.started():
        for _ in range(ROUNDS):
            await server.submit()
        for _ in range(2):
            claims = await server.batch([claim(number, 1) for number in range(CONNECTIONS // 2)])
            await server.batch([completion(one["jobs"][0]) for one in claims])
        yield server


def test_a_batch_of_submissions_costs_ten_statements_and_one_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-submissions") as vfs:
            async with counted(tmp_path, vfs) as server:
                await server.submit()
                assert len(server.cost.statements) <= 11, server.cost.statements
                assert server.cost.syncs == 1
                assert server.cost.pages <= 60

    asyncio.run(test())


def test_a_batch_of_retries_costs_two_reads_and_no_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-retries") as vfs:
            async with counted(tmp_path, vfs) as server:
                await server.submit()
                server.numbers -= CONNECTIONS
                answers = await server.submit()
                assert all(answer["dedup"] for answer in answers)
                assert len(server.cost.statements) <= 5, server.cost.statements
                assert server.cost.syncs == server.cost.pages == 0

    asyncio.run(test())


def test_a_batch_of_claims_reads_the_lines_once_and_costs_one_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-claims") as vfs:
            async with counted(tmp_path, vfs) as server:
                claims = await server.batch([claim(number, 1) for number in range(CONNECTIONS)])
                assert [len(one["jobs"]) for one in claims] == [1] * CONNECTIONS
                assert len(server.cost.statements) <= 11, server.cost.statements  # one looks for other programs
                assert server.cost.syncs == 1
                assert server.cost.pages <= 36

    asyncio.run(test())


def test_a_batch_of_completions_costs_seven_statements_and_one_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-completions") as vfs:
            async with counted(tmp_path, vfs) as server:
                claims = await server.batch([claim(number, 1) for number in range(CONNECTIONS)])
                answers = await server.batch([completion(one["jobs"][0]) for one in claims])
                assert {answer["status"] for answer in answers} == {"completed"}
                assert len(server.cost.statements) <= 7, server.cost.statements
                assert server.cost.syncs == 1
                assert server.cost.pages <= 36

    asyncio.run(test())


def test_pipelined_submissions_of_one_connection_share_one_sync(tmp_path: Path) -> None:
    async def test() -> None:
        with FaultyVfs("counting-pipelined") as vfs:
            async with counted(tmp_path, vfs) as server:
                protocol, pipe = server.connections[0]
                pipe.written.clear()
                server.count()
                protocol.data_received(b"".join(submission(10_000 + number) for number in range(CONNECTIONS)))
                while protocol.running is not None or protocol.waiting:  # noqa: ASYNC110 - a fake pipe
                    await asyncio.sleep(0)
                assert pipe.statuses == [200] * CONNECTIONS
                assert server.cost.syncs == 1

    asyncio.run(test())

"""One caller cannot fill the engine's queue: others are answered beside a flood, on every wire that writes."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.harness.server import RunningServer
from tests.harness.together import LateError, in_time

TOKENS = {"flood": b"the-token-of-the-flood", "other": b"the-token-of-the-other"}
QUEUE = 40
SLOW = {"SEMEL_QUEUE_WRITES": str(QUEUE), "SEMEL_BATCH_WRITES": "1"}
DELAY_SECONDS = 0.1
"""How long a commit takes, so that a queue forms behind the one that is being stored."""


class Flooded(NamedTuple):
    """What the two callers were answered, and when the other one asked and was answered, since the flood began."""

    floods: list[httpx.Response]
    others: list[httpx.Response]
    asked: float
    answered: float
    metrics: str = ""


def token_file(folder: Path) -> str:
    lines = []
    for name, token in TOKENS.items():
        digest = hashlib.sha256(token).hexdigest()
        lines.append(f'[[token]]\nname = "{name}"\nsha256 = "{digest}"\nroles = ["read", "write"]\n')
    path = folder / "tokens.toml"
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    return str(path)


def auth(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKENS[name].decode()}", "Content-Type": "text/plain"}


async def post(http: httpx.AsyncClient, name: str, number: int) -> httpx.Response:
    return await http.post("/v1/stream/s", content=b"x", headers=auth(name) | {"Idempotency-Key": f"{name}-{number}"})


async def flood(http: httpx.AsyncClient) -> Flooded:
    """Many writes of one caller at once, and a few of another as soon as the first ones are refused."""
    (await http.put("/v1/stream/s", headers=auth("flood"))).raise_for_status()
    began = time.monotonic()
    first = [asyncio.create_task(post(http, "flood", number)) for number in range(3 * QUEUE)]
    while not any(task.done() and task.result().status_code == httpx.codes.SERVICE_UNAVAILABLE for task in first):
        await asyncio.sleep(0.01)
        if all(task.done() for task in first):
            raise LateError("the flood was taken whole: nothing was shown")
    asked = time.monotonic() - began
    others = await asyncio.gather(*(post(http, "other", number) for number in range(5)))
    answered = time.monotonic() - began
    return Flooded(list(await asyncio.gather(*first)), list(others), asked, answered)


def run(folder: Path, env: dict[str, str], delay: float) -> Flooded:
    async def main(url: str) -> Flooded:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as http:
            seen = await flood(http)
            metrics = await http.get("/metrics", headers={"Accept": "text/plain"} | auth("other"))
            return seen._replace(metrics=metrics.text)

    slow = SLOW | {"SEMEL_COMMIT_DELAY_MS": str(round(1_000 * delay)), "SEMEL_TOKENS": token_file(folder)}
    with RunningServer(folder / f"{delay}", env=slow | env) as server:
        return asyncio.run(main(server.url))


def unless_drained(check: Callable[[], None], seconds: float, delay: float) -> None:
    """What a check finds says nothing if a quarter of the queue may have been stored before the other caller came."""
    try:
        check()
    except AssertionError as error:
        if seconds < QUEUE * delay / 4:
            raise
        raise LateError(f"the other caller came after {seconds:.1f} s") from error


def test_b7_a_flood_of_one_caller_is_refused_at_its_share_and_another_caller_is_served(tmp_path: Path) -> None:
    def body(delay: float) -> None:
        seen = run(tmp_path, {}, delay)
        unless_drained(lambda: check_shares(seen), seen.asked, delay)

    in_time(body, DELAY_SECONDS)


def check_shares(seen: Flooded) -> None:
    assert [answer.status_code for answer in seen.others] == [204] * 5
    refused = [answer for answer in seen.floods if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE]
    assert {answer.json()["code"] for answer in refused} == {"OVERLOADED"}
    assert all(answer.headers["Retry-After"] for answer in refused)
    [counted] = re.findall(r"^semel_engine_share_refusals_total (\d+)", seen.metrics, re.MULTILINE)
    assert int(float(counted)) == len(refused)


def test_b7_with_the_whole_queue_as_its_share_a_flood_keeps_others_out(tmp_path: Path) -> None:
    def body(delay: float) -> None:
        seen = run(tmp_path, {"SEMEL_QUEUE_PRINCIPAL_SHARE": "1"}, delay)
        unless_drained(lambda: check_kept_out(seen), seen.answered, delay)

    in_time(body, DELAY_SECONDS)


def check_kept_out(seen: Flooded) -> None:
    assert httpx.codes.SERVICE_UNAVAILABLE in [answer.status_code for answer in seen.others]

"""One caller cannot fill the engine's queue: others are answered beside a flood, on every wire that writes."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path

import httpx

from tests.harness.server import RunningServer

TOKENS = {"flood": b"the-token-of-the-flood", "other": b"the-token-of-the-other"}
QUEUE = 40
SLOW = {
    "SEMEL_QUEUE_WRITES": str(QUEUE),
    "SEMEL_BATCH_WRITES": "1",
    "SEMEL_COMMIT_DELAY_MS": "100",  # so that a queue forms behind the one that is being stored
}


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


async def flood(http: httpx.AsyncClient) -> tuple[list[httpx.Response], list[httpx.Response]]:
    """Many writes of one caller at once, and a few of another as soon as the first ones are refused."""
    (await http.put("/v1/stream/s", headers=auth("flood"))).raise_for_status()
    first = [asyncio.create_task(post(http, "flood", number)) for number in range(3 * QUEUE)]
    while not any(task.done() and task.result().status_code == httpx.codes.SERVICE_UNAVAILABLE for task in first):
        await asyncio.sleep(0.01)
        assert not all(task.done() for task in first), "the flood was taken whole: nothing was shown"
    others = await asyncio.gather(*(post(http, "other", number) for number in range(5)))
    return list(await asyncio.gather(*first)), list(others)


def run(folder: Path, env: dict[str, str]) -> tuple[list[httpx.Response], list[httpx.Response], str]:
    async def main(url: str) -> tuple[list[httpx.Response], list[httpx.Response], str]:
        limits = httpx.Limits(max_connections=200)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as http:
            floods, others = await flood(http)
            metrics = await http.get("/metrics", headers={"Accept": "text/plain"} | auth("other"))
            return floods, others, metrics.text

    with RunningServer(folder / "data", env=SLOW | env | {"SEMEL_TOKENS": token_file(folder)}) as server:
        return asyncio.run(main(server.url))


def test_b7_a_flood_of_one_caller_is_refused_at_its_share_and_another_caller_is_served(tmp_path: Path) -> None:
    floods, others, metrics = run(tmp_path, {})
    assert [answer.status_code for answer in others] == [204] * 5
    refused = [answer for answer in floods if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE]
    assert {answer.json()["code"] for answer in refused} == {"OVERLOADED"}
    assert all(answer.headers["Retry-After"] for answer in refused)
    [counted] = re.findall(r"^semel_engine_share_refusals_total (\d+)", metrics, re.MULTILINE)
    assert int(float(counted)) == len(refused)


def test_b7_with_the_whole_queue_as_its_share_a_flood_keeps_others_out(tmp_path: Path) -> None:
    _, others, _ = run(tmp_path, {"SEMEL_QUEUE_PRINCIPAL_SHARE": "1"})
    assert httpx.codes.SERVICE_UNAVAILABLE in [answer.status_code for answer in others]

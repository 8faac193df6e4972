"""Writes in flight on every surface, and limits that change while the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.deltas.vectors import columns, delta, now_ms, stamp
from tests.harness.server import RunningServer
from tests.harness.tokens import Issuer
from tests.server.quotas.site import OTHER, Site, auth, file_text, served
from tests.server.quotas.test_wires import SHAPES, refused

AT_ONCE = 8
SLOW = {"SEMEL_BATCH_WRITES": "1", "SEMEL_COMMIT_DELAY_MS": "60"}
"""A write waits for the commits before it, so that a queue forms."""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    named = {f"flight-{surface}": {"in_flight_writes": 1} for surface in SHAPES}
    with served(tmp_path_factory.mktemp("slow"), named, **SLOW) as site:
        yield site


def write(surface: str, name: str, number: int) -> tuple[str, Any]:
    """A write of a surface that differs from all others."""
    if surface == "streams":
        return "/v1/stream/s", f"content {number}"
    if surface == "events":
        event = {"id": f"{name}-{number}", "partitions": ["p"], "event": {"type": "t", "payload": number}}
        return f"/v1/events?client_id={name}", {"events": [event]}
    if surface == "jobs":
        return "/v1/jobs", {"kind": "k", "params": {"number": number}}
    if surface == "ledger":
        return "/ledger/v1/orgs", {"name": f"{name}-{number}"}
    made = delta(cells=columns(title=str(number)), row=f"r{number}", client=name, hlc=stamp(now_ms()))
    return "/sync/g/push", {"clientId": name, "deltas": [made], "lastSeenHlc": "0"}


@pytest.mark.parametrize("surface", [surface for surface in SHAPES if surface != "server"])
def test_a_write_beyond_those_in_flight_gets_429_and_is_not_stored(slow: Site, surface: str) -> None:
    async def send(name: str, numbers: range) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=slow.server.url, headers=auth(name), timeout=60) as http:

            async def post(number: int) -> httpx.Response:
                path, body = write(surface, name, number)
                if isinstance(body, str):
                    return await http.post(path, content=body, headers={"Content-Type": "text/plain"})
                return await http.post(path, json=body)

            return list(await asyncio.gather(*(post(number) for number in numbers)))

    async def both() -> tuple[list[httpx.Response], list[httpx.Response]]:
        floods, others = await asyncio.gather(
            send(f"flight-{surface}", range(AT_ONCE)), send(OTHER, range(AT_ONCE, 2 * AT_ONCE))
        )
        return floods, others

    floods, others = asyncio.run(both())
    late = [answer for answer in floods if answer.status_code == 429]
    assert late, [answer.text for answer in floods]
    for answer in late:
        refused(answer, surface, "in_flight_writes")
    assert all(answer.is_success for answer in (*others, *floods) if answer not in late), [one.text for one in floods]
    assert slow.refusals("in_flight_writes") >= len(late)


def test_quotas_come_change_and_go_with_sighup(tmp_path: Path) -> None:
    with served(tmp_path, {"shop": {}, "bank": {}}) as site, site.client("shop") as shop, site.client("bank") as bank:
        statuses = [shop.get("/v1/stream/s").status_code for _ in range(30)]
        assert set(statuses) == {200}
        site.hang_up(file_text({OTHER: {}, "shop": {"requests_per_second": 1}, "bank": {}}))
        assert 429 in [shop.get("/v1/stream/s").status_code for _ in range(12)]
        assert {bank.get("/v1/stream/s").status_code for _ in range(30)} == {200}
        site.hang_up(file_text({OTHER: {}, "shop": {"requests_per_second": 1_000_000}, "bank": {}}))
        assert shop.get("/v1/stream/s").status_code in (200, 429)  # a debt is paid at once
        assert {shop.get("/v1/stream/s").status_code for _ in range(30)} == {200}


def test_an_invalid_quota_leaves_the_old_ones_in_force(tmp_path: Path) -> None:
    with served(tmp_path, {"shop": {"connections": 1}}) as site, site.client("shop") as first:
        assert first.get("/v1/stream/s").status_code == 200
        site.hang_up(file_text({OTHER: {}, "shop": {"lines": 1}}))
        assert '"why":"quota 1 has an unusable limit"' in site.server.output.read_text()
        with site.client("shop") as second:
            assert second.get("/v1/stream/s").status_code == 429


def test_a_default_holds_for_each_principal_apart(tmp_path: Path) -> None:
    named = {"shop": {}, "bank": {}, "large": {"connections": 5}}
    with served(tmp_path, named, SEMEL_QUOTA_CONNECTIONS="1") as site:
        found = {}
        for name in named:
            with site.client(name) as first, site.client(name) as second:
                found[name] = [client.get("/v1/stream/s").status_code for client in (first, second)]
        assert found == {"shop": [200, 429], "bank": [200, 429], "large": [200, 200]}


def test_quotas_have_no_effect_in_development_mode(tmp_path: Path) -> None:
    env = {"SEMEL_QUOTA_REQUESTS_PER_SECOND": "1"}
    with RunningServer(tmp_path / "data", env=env) as server, httpx.Client(base_url=server.url) as client:
        assert {client.get("/v1/streams").status_code for _ in range(20)} == {200}


def test_a_quota_of_a_user_holds_for_the_subject_of_a_jwt(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    quota = '[[quota]]\nname = "user:ann"\nconnections = 1\n'
    with served(tmp_path, {}, SEMEL_JWT_KEYS=str(issuer.keys)) as site:
        site.hang_up(file_text({OTHER: {}}) + quota)
        found = {}
        for subject in ("ann", "bob"):
            headers = {"Authorization": f"Bearer {issuer.token(subject, role='admin')}"}
            with (
                httpx.Client(base_url=site.server.url, headers=headers) as first,
                httpx.Client(base_url=site.server.url, headers=headers) as second,
            ):
                found[subject] = [client.get("/v1/streams").status_code for client in (first, second)]
    assert found == {"ann": [200, 429], "bob": [200, 200]}


def test_each_namespace_counts_alone_and_sighup_reaches_all(tmp_path: Path) -> None:
    places = ("/v1/streams", "/ns/tenant/v1/streams")
    with served(tmp_path, {"shop": {}}, SEMEL_NAMESPACES="tenant", SEMEL_STORE="") as site:
        site.hang_up(file_text({OTHER: {}, "shop": {"connections": 1}}))
        with ExitStack() as stack:
            found = {}
            for place in places:
                clients = [stack.enter_context(site.client("shop")) for _ in range(2)]
                found[place] = [client.get(place).status_code for client in clients]
    assert found == {place: [200, 429] for place in places}

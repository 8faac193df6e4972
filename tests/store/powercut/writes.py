"""Writes under keys of every surface: their requests, what of an answer must stay the same, and where they are seen."""

from __future__ import annotations

import base64
import json
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.deltas.vectors import columns, delta
from tests.store.powercut.server import CutServer, HttpAnswer

STREAMS = ("s0", "s1", "s2")
SURFACES = ("streams", "streams", "streams", "jobs", "events", "ledger", "deltas")
"""What a write is drawn from."""


@dataclass
class KeyedWrite:
    """One write under a key."""

    surface: str
    number: int
    data: bytes
    sent_ms: int
    sent_at: int = -1
    """The operation of the disk before which it was first sent in this life; -1 if in an earlier one."""
    told: Any = None
    """What was answered; None if nothing was."""
    told_at: int = -1
    """The operation of the disk before which that was; -1 if in an earlier life."""
    done_at: int | None = None
    """When the completion of its job was answered."""

    @property
    def name(self) -> str:
        """How reads show it."""
        return str(delta_of(self.number)["deltaId"]) if self.surface == "deltas" else f"n{self.number}"


def request(method: str, path: str, body: Any = None, **headers: str) -> bytes:
    """The bytes of a request."""
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(content)}"]
    lines += ["Content-Type: application/json"] if content or method == "PUT" else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def delta_of(number: int) -> dict[str, Any]:
    """The delta of a number."""
    return delta("INSERT", columns(title=f"n{number}"), row=f"n{number}", hlc=115998720000000000 + number)


def write_of(surface: str, number: int, vault: str, ms: int, padding: str) -> KeyedWrite:
    """A write that is drawn."""
    name = f"n{number}"
    if surface == "streams":
        path = f"/v1/stream/{STREAMS[number % len(STREAMS)]}"
        data = request("POST", path, {"n": name, "x": padding}, Idempotency_Key=name)
    elif surface == "jobs":
        data = request("POST", "/v1/jobs", {"idempotency_key": name, "kind": "k", "params": {"x": padding}})
    elif surface == "events":
        event = {"id": name, "partitions": ["p"], "event": {"type": "t", "payload": {"x": padding}}}
        data = request("POST", "/v1/events", {"events": [event]})
    elif surface == "ledger":
        value = base64.b64encode(padding.encode()).decode()
        body = {"clientId": "c", "operations": [{"setEntity": {"key": name, "value": value}}]}
        data = request("POST", f"{vault}/writes", body, Idempotency_Key=str(uuid.UUID(int=number + 1)))
    else:
        data = request("POST", "/v1/sync/g/push", {"clientId": "client-a", "deltas": [delta_of(number)]})
    return KeyedWrite(surface, number, data, ms)


def essence(surface: str, answer: HttpAnswer) -> Any:
    """What a retry must say again; raises if the answer is no success."""
    assert answer.status in (200, 201, 202, 204), answer
    body = answer.body
    if surface == "streams":
        return answer.headers["stream-next-offset"]
    if surface == "jobs":
        return body["job_id"]
    if surface == "events":
        [result] = body["results"]
        return result["committed_id"]
    if surface == "ledger":
        if "success" in body:
            return body["success"]["txId"]["id"], body["success"]["blockHeight"]
        return body["error"]["committedTxId"]["id"], body["error"]["committedBlockHeight"]
    assert body["accepted"] == 1, body
    return "accepted"


async def seen(server: CutServer, vault: str) -> Counter[tuple[str, str]]:
    """How often each write shows in what the surfaces give to readers; jobs are counted in their list."""
    counted: Counter[tuple[str, str]] = Counter()
    for surface, read in _READS.items():
        counted.update((surface, name) for name in await read(server, vault))
    return counted


async def job_count(server: CutServer) -> int:
    """How many jobs there are, by the list."""
    count, behind = 0, ""
    while True:
        page = (await _get(server, f"/v1/jobs?limit=1000{behind}")).body
        count += len(page["jobs"])
        if page["next"] is None:
            return count
        behind = f"&after={page['next']}"


async def _get(server: CutServer, path: str) -> HttpAnswer:
    answer, _ = await server.send(request("GET", path))
    return answer


async def _streams(server: CutServer, vault: str) -> list[str]:
    found = []
    for stream in STREAMS:
        offset, is_more = "-1", True
        while is_more:
            answer = await _get(server, f"/v1/stream/{stream}?offset={offset}")
            if answer.status == 404:
                break
            assert answer.status == 200, answer
            found += [message["n"] for message in answer.body or []]
            offset = answer.headers["stream-next-offset"]
            is_more = "stream-up-to-date" not in answer.headers
    return found


async def _events(server: CutServer, vault: str) -> list[str]:
    found: list[str] = []
    since, more, to = 0, True, ""
    while more:
        page = (await _get(server, f"/v1/events?partition=p&since={since}{to}&limit=1000")).body
        found += [event["id"] for event in page["events"]]
        since, more, to = page["next_since_committed_id"], page["has_more"], f"&to={page['sync_to_committed_id']}"
    return found


async def _ledger(server: CutServer, vault: str) -> list[str]:
    if not vault:
        return []
    found: list[str] = []
    path = f"{vault}/entities?limit=1000"
    answer = await _get(server, path)
    assert answer.status == 200, answer
    assert not answer.body.get("nextPageToken"), answer
    found += [entity["key"] for entity in answer.body.get("entities", [])]
    return found


async def _deltas(server: CutServer, vault: str) -> list[str]:
    found: list[str] = []
    since, more = "0", True
    while more:
        answer = await _get(server, f"/v1/sync/g/pull?since={since}&clientId=reader")
        if answer.status == 404:
            break
        found += [one["deltaId"] for one in answer.body["deltas"]]
        since, more = answer.body["serverHlc"], answer.body["hasMore"]
    return found


_READS: dict[str, Callable[[CutServer, str], Awaitable[list[str]]]] = {
    "streams": _streams,
    "events": _events,
    "ledger": _ledger,
    "deltas": _deltas,
}

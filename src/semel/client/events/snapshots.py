"""`client.events.snapshots`: the state of a partition at a position, so that a reader can join a pruned log.

Promise: a snapshot that was answered is stored; the same content at the same position is stored once. Load the newest
one, and follow from its `committed_id`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from semel.client.errors import InvalidArgumentError
from semel.client.identity import NamedCall
from semel.client.json_answer import Facts, facts_of, flag, read, value_of
from semel.client.retry import ClientCaller
from semel.client.sync_calls import BlockingCalls, blocking
from semel.client.transport.http_transport import ClientRequest
from semel.kernel.json.members import is_utf8

SNAPSHOTS_PATH = "/v1/events/snapshots"
BYTES = "application/octet-stream"
MOST_SNAPSHOT_BYTES = 1 << 31


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """The answer to a stored snapshot."""

    partition: str
    committed_id: int
    replayed: bool
    """Whether the same snapshot was stored before."""
    superseded: bool
    """Whether a newer one exists, so that this one was not stored."""


@dataclass(frozen=True, slots=True)
class EventSnapshot:
    """The state of a partition behind the event `committed_id`."""

    partition: str
    committed_id: int
    content_type: str
    data: bytes

    def value(self) -> Any:
        """The content as JSON."""
        return value_of(self.data)


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot without its content."""

    committed_id: int
    content_type: str
    size: int
    sha256: str


class AsyncEventSnapshots:
    """The snapshots of one server, from asyncio code."""

    def __init__(self, caller: ClientCaller) -> None:
        self._caller = caller

    async def put(self, partition: str, committed_id: int, data: bytes, *, content_type: str = BYTES) -> StoredSnapshot:
        """Store the state of a partition behind an event. Other content at the same position raises `ConflictError`."""
        path = f"{_path(partition)}/{committed_id}"
        request = ClientRequest("PUT", path, bytes(data), {"Content-Type": content_type})
        return await self._caller.facts_as(_stored, request, NamedCall("PUT", path))

    async def get(self, partition: str, *, at_most: int | None = None) -> EventSnapshot:
        """The newest snapshot of a partition, at or before a position. Raises `NotFoundError` if there is none."""
        query = "" if at_most is None else f"?{urlencode({'at_most': at_most})}"
        answer = await self._caller.call(
            ClientRequest("GET", f"{_path(partition)}{query}", most_bytes=MOST_SNAPSHOT_BYTES)
        )
        return read(
            lambda: EventSnapshot(
                partition,
                int(answer.headers["semel-committed-id"]),
                answer.headers.get("content-type", BYTES),
                answer.body,
            )
        )

    async def list(self, partition: str) -> list[SnapshotInfo]:
        """The snapshots of a partition that are kept, the newest first."""
        answer = await self._caller.call(ClientRequest("GET", f"{_path(partition)}/list"))
        return read(lambda: [_info(one) for one in _snapshots(answer.body)])

    async def delete(self, partition: str, committed_id: int) -> bool:
        """Delete a snapshot. False if there was none."""
        path = f"{_path(partition)}/{committed_id}"
        request = ClientRequest("DELETE", path)
        return await self._caller.facts_as(lambda facts: flag(facts, "deleted"), request, NamedCall("DELETE", path))


def _path(partition: str) -> str:
    if not partition or not is_utf8(partition):
        raise InvalidArgumentError("The name of a partition must be valid Unicode, and not empty.")
    return f"{SNAPSHOTS_PATH}/{quote(partition, safe='')}"


def _stored(facts: Facts) -> StoredSnapshot:
    return StoredSnapshot(
        facts["partition"], int(facts["committed_id"]), facts["replayed"] is True, facts["superseded"] is True
    )


def _snapshots(body: bytes) -> list[dict[str, Any]]:
    found: Any = facts_of(body)["snapshots"]
    return list(found)


def _info(facts: dict[str, Any]) -> SnapshotInfo:
    return SnapshotInfo(int(facts["committed_id"]), str(facts["media_type"]), int(facts["size"]), str(facts["sha256"]))


class EventSnapshots(BlockingCalls[AsyncEventSnapshots]):
    """The snapshots of one server, from synchronous code."""

    put = blocking(AsyncEventSnapshots.put)
    get = blocking(AsyncEventSnapshots.get)
    list = blocking(AsyncEventSnapshots.list)
    delete = blocking(AsyncEventSnapshots.delete)

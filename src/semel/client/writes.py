"""`client.writes`: the life of a write, by any of its identities."""

from __future__ import annotations

from dataclasses import dataclass, field

from semel.client.json_answer import Facts, flag
from semel.client.retry import ClientCaller, json_request
from semel.client.sync_calls import BlockingCalls, blocking
from semel.kernel.json.fragment import dump

PATH = "/v1/writes/find"


@dataclass(frozen=True, slots=True)
class WriteRetry:
    """A retry that was answered from the receipt; what is not known is None."""

    at: str
    principal: str | None
    address: str | None


@dataclass(frozen=True, slots=True)
class WriteLife:
    """A write that took effect; times are texts in UTC, and what is not known is None."""

    surface: str
    identity: str
    """The kind of the identity that has matched, such as `idempotency_key`."""
    place: str | None
    """Where the identity counts; None for the whole server."""
    at: str | None
    principal: str | None
    effect: Facts
    """What it did; `path` is the path of the API that shows it, or None."""
    answer: Facts | None
    """What a retry gets now; None if it would be a new write."""
    retries: int
    last_retries: tuple[WriteRetry, ...]
    """The last of them, oldest first."""
    expires_at: str | None
    facts: Facts = field(default_factory=dict, compare=False, repr=False)
    """The whole entry."""


@dataclass(frozen=True, slots=True)
class WriteLives:
    """The writes of an identity that the caller may read."""

    writes: tuple[WriteLife, ...]
    is_complete: bool
    hint: str | None
    """What to name so that the answer is complete."""
    facts: Facts = field(default_factory=dict, compare=False, repr=False)
    """The whole answer."""


def write_life(facts: Facts) -> WriteLife:
    """The life of a write, from its JSON."""
    first, retries = facts["first"], facts["retries"]
    return WriteLife(
        surface=str(facts["surface"]),
        identity=str(facts["identity"]),
        place=facts["in"],
        at=first["at"],
        principal=first["principal"],
        effect=facts["effect"],
        answer=facts["answer"],
        retries=int(retries["count"]),
        last_retries=tuple(WriteRetry(one["at"], one["principal"], one["address"]) for one in retries["last"]),
        expires_at=facts["expires_at"],
        facts=facts,
    )


def _lives(facts: Facts) -> WriteLives:
    return WriteLives(tuple(map(write_life, facts["writes"])), flag(facts, "complete"), facts["hint"], facts)


class AsyncWrites:
    """Look-ups of writes on one server, from asyncio code."""

    def __init__(self, caller: ClientCaller) -> None:
        self._caller = caller

    async def find(self, identity: str, place: str | None = None) -> WriteLives:
        """The writes of an identity; `place` names the stream, partition, principal, organization or gateway."""
        body = {"id": identity} | ({} if place is None else {"in": place})
        return await self._caller.facts_as(_lives, json_request("POST", PATH, dump(body)))


class Writes(BlockingCalls[AsyncWrites]):
    """Look-ups of writes on one server, from synchronous code."""

    find = blocking(AsyncWrites.find)

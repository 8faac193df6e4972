"""`client.streams.subscriptions`: durable cursors over many streams, and wakes for whatever is appended to them.

Promise: what is appended after a subscription was made wakes it until it is acknowledged: at least once. Creating,
linking and deleting can be repeated. The lease of a claim fences: an ack or a release after its end changes nothing.

| lost answer | what then |
|---|---|
| claim | not repeated: the lease may be given, and ends by itself after its time; then claim again |
| ack | repeated under the same generation; `OutcomeUnknown` if the lease has ended meanwhile |
| release | repeated; a lease that is over by then counts as released |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, urlencode

from semel.client.errors import AccessError, CallError, ConflictError, InvalidArgumentError, OutcomeUnknown, SemelError
from semel.client.identity import NamedCall
from semel.client.json_answer import Facts, facts_of, flag
from semel.client.list_walk import ListWalk
from semel.client.retry import ClientCaller, json_request, unknown_outcome
from semel.client.sync_calls import BlockingCalls, blocking, blocking_iterator
from semel.client.transport.http_transport import ClientAnswer, ClientRequest
from semel.kernel.json.fragment import dump
from semel.kernel.json.members import is_utf8

CONTROL_PATH = "/v1/stream/__ds"
PAGE = 1_000
NO_WORK, FENCED = "NO_PENDING_WORK", "FENCED"

LOST_TOKENS = ("TOKEN_INVALID", "TOKEN_EXPIRED")


@dataclass(frozen=True, slots=True)
class SubscribedStream:
    """A stream of a subscription, and how far it is acknowledged."""

    path: str
    """The name of the stream."""
    link_type: Literal["glob", "explicit"]
    acked_offset: str
    tail_offset: str | None = None
    """Its tail when the wake was made; None outside a wake."""
    has_pending: bool | None = None
    """Whether there is content to process; None outside a wake."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription as the server describes it."""

    id: str
    type: Literal["webhook", "pull-wake"]
    status: str
    """`active`, or `failed` while its webhook does not answer."""
    streams: tuple[SubscribedStream, ...]
    lease_ms: int
    created_at: str
    pattern: str | None = None
    webhook_url: str | None = None
    jwks_url: str | None = None
    """Where the keys are published with which webhooks are signed."""
    wake_stream: str | None = None
    description: str | None = None
    is_created: bool = False
    """Whether this call created it; False if an equal one existed."""
    facts: Facts = field(default_factory=dict, compare=False, repr=False)
    """The whole answer."""


@dataclass(frozen=True, slots=True)
class SubscriptionList:
    """A page of the list of subscriptions."""

    subscriptions: list[dict[str, Any]]
    next_after: str | None


@dataclass(frozen=True, slots=True)
class SubscriptionClaim:
    """The lease of a wake: its streams are to be read from `acked_offset` on, then acknowledged."""

    subscription_id: str
    wake_id: str
    generation: int
    streams: tuple[SubscribedStream, ...]
    lease_ms: int
    token: str = field(repr=False)
    """The credential of acks and of the release."""


def subscribed_streams(facts: Facts) -> tuple[SubscribedStream, ...]:
    """The member `streams` of a subscription, a claim or a webhook."""
    return tuple(
        SubscribedStream(
            str(one["path"]), one["link_type"], str(one["acked_offset"]), one.get("tail_offset"), one.get("has_pending")
        )
        for one in facts["streams"]
    )


def _subscription_of(facts: Facts, *, is_created: bool = False) -> Subscription:
    webhook: Facts = facts.get("webhook") or {}
    return Subscription(
        id=str(facts["id"]),
        type=facts["type"],
        status=str(facts["status"]),
        streams=subscribed_streams(facts),
        lease_ms=int(facts["lease_ttl_ms"]),
        created_at=str(facts["created_at"]),
        pattern=facts.get("pattern"),
        webhook_url=webhook.get("url"),
        jwks_url=(webhook.get("signing") or {}).get("jwks_url"),
        wake_stream=facts.get("wake_stream"),
        description=facts.get("description"),
        is_created=is_created,
        facts=facts,
    )


def _claim_of(facts: Facts, subscription_id: str) -> SubscriptionClaim:
    return SubscriptionClaim(
        subscription_id,
        str(facts["wake_id"]),
        int(facts["generation"]),
        subscribed_streams(facts),
        int(facts["lease_ttl_ms"]),
        str(facts["token"]),
    )


def _path(subscription_id: str, call: str = "") -> str:
    if not subscription_id or not is_utf8(subscription_id):
        raise InvalidArgumentError("The id of a subscription must be valid Unicode, and not empty.")
    return f"{CONTROL_PATH}/subscriptions/{quote(subscription_id, safe='')}{call}"


class AsyncSubscriptions:
    """The subscriptions of one server, from asyncio code."""

    def __init__(self, caller: ClientCaller) -> None:
        self._caller = caller

    async def create(
        self,
        subscription_id: str,
        *,
        pattern: str | None = None,
        streams: Iterable[str] = (),
        webhook: str | None = None,
        wake_stream: str | None = None,
        lease: float = 30.0,
        description: str | None = None,
    ) -> Subscription:
        """Create a subscription, or confirm that an equal one exists; another one of this id raises `ConflictError`.

        It is for the streams whose names match `pattern` (`*` is one segment, `**` any number), and for those of
        `streams`. Wakes go to the URL `webhook`, or as messages to the stream `wake_stream`, where a worker claims
        them. `lease` is in seconds, from 1 to 600.
        """
        if (webhook is None) == (wake_stream is None):
            raise InvalidArgumentError("Give a subscription a webhook or a wake stream, and not both.")
        body: dict[str, Any] = {"type": "pull-wake", "wake_stream": wake_stream}
        if webhook is not None:
            body = {"type": "webhook", "webhook": {"url": webhook}}
        named = list(streams)
        body |= {"lease_ttl_ms": round(lease * 1_000)} | ({"streams": named} if named else {})
        body |= {name: value for name, value in (("pattern", pattern), ("description", description)) if value}
        path = _path(subscription_id)

        def made(answer: ClientAnswer) -> Subscription:
            return _subscription_of(facts_of(answer.body), is_created=answer.status == 201)

        return await self._caller.answer_as(made, json_request("PUT", path, dump(body)), NamedCall("PUT", path))

    async def get(self, subscription_id: str) -> Subscription:
        """A subscription, with the acknowledged offset of each of its streams."""
        return await self._caller.facts_as(_subscription_of, ClientRequest("GET", _path(subscription_id)))

    def walk(self) -> ListWalk[dict[str, Any]]:
        """The subscriptions that the caller may read, page by page: their facts without their streams."""
        return ListWalk(self._page, lambda page: page.subscriptions, "")

    async def _page(self, after: str) -> SubscriptionList:
        query = urlencode({"after": after, "limit": PAGE})
        facts = await self._caller.facts(ClientRequest("GET", f"/v1/streams/subscriptions?{query}"))
        return self._caller.understood(lambda: SubscriptionList(list(facts["subscriptions"]), facts["after"]))

    async def delete(self, subscription_id: str) -> None:
        """Delete a subscription; its streams stay. One that does not exist is no error."""
        await self._send("DELETE", _path(subscription_id), None)

    async def add_streams(self, subscription_id: str, streams: Iterable[str]) -> None:
        """Link streams at their present tails; those that are linked stay as they are."""
        await self._send("POST", _path(subscription_id, "/streams"), {"streams": list(streams)})

    async def remove_stream(self, subscription_id: str, stream: str) -> None:
        """Remove the link of a stream; one that the pattern matches stays."""
        named = quote(stream.encode("utf-8", "surrogateescape"), safe="")
        await self._send("DELETE", _path(subscription_id, f"/streams/{named}"), None)

    async def claim(self, subscription_id: str, worker: str) -> SubscriptionClaim | None:
        """Take the lease of the pending work; None if nothing is pending.

        A lease that another worker holds raises `ConflictError`. A lost answer raises `NoAnswerError`: the lease may be
        given to this call, and ends by itself.
        """
        request = json_request("POST", _path(subscription_id, "/claim"), dump({"worker": worker}))
        try:
            return await self._caller.facts_as(lambda facts: _claim_of(facts, subscription_id), request)
        except ConflictError as error:
            if error.code == NO_WORK:
                return None
            raise

    async def ack(self, claim: SubscriptionClaim, offsets: Mapping[str, str], *, done: bool = False) -> bool:
        """Acknowledge each stream up to an offset, all or none; returns whether more work is pending after `done`.

        It begins the time of the lease anew; `done` ends the lease. An ended lease raises `ConflictError`.
        """
        acks = [{"stream": name, "offset": offset} for name, offset in offsets.items()]
        path = _path(claim.subscription_id, "/ack")
        repeats = _Repeats(claim, path, {"acks": acks, "done": done})
        identity = NamedCall("POST", path)
        try:
            return await self._caller.facts_as(
                lambda facts: flag(facts, "next_wake"), repeats.request, identity, repeats.again
            )
        except ConflictError as error:
            if not repeats.are_unsettled or error.code != FENCED:
                raise  # else an earlier attempt may have been applied before the lease ended
            raise unknown_outcome(error, identity) from error

    async def release(self, claim: SubscriptionClaim) -> None:
        """End the lease without an ack: what is pending wakes again."""
        path = _path(claim.subscription_id, "/release")
        repeats = _Repeats(claim, path, {})
        try:
            await self._caller.call(repeats.request, NamedCall("POST", path), repeats.again)
        except (AccessError, ConflictError, OutcomeUnknown) as error:
            if not repeats.are_unsettled or not _is_over(error):
                raise  # else the lease has ended, by an earlier attempt or by its time

    async def jwks(self) -> dict[str, Any]:
        """The keys with which this server signs webhooks, for `verify_webhook`."""
        return dict(await self._caller.facts(ClientRequest("GET", f"{CONTROL_PATH}/jwks.json")))

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> None:
        request = ClientRequest(method, path) if body is None else json_request(method, path, dump(body))
        await self._caller.call(request, NamedCall(method, path))


def _is_over(error: SemelError) -> bool:
    """Whether a refusal says that the lease has ended."""
    refused = error.__cause__ if isinstance(error, OutcomeUnknown) else error
    return isinstance(refused, ConflictError | AccessError) and refused.code in (FENCED, *LOST_TOKENS)


class _Repeats:
    """The request of a lease, and whether an attempt with it may have taken effect."""

    def __init__(self, claim: SubscriptionClaim, path: str, more: dict[str, Any]) -> None:
        body = {"wake_id": claim.wake_id, "generation": claim.generation} | more
        self.request = json_request("POST", path, dump(body), headers={"Authorization": f"Bearer {claim.token}"})
        self.are_unsettled = False

    def again(self, error: CallError) -> ClientRequest:
        self.are_unsettled = self.are_unsettled or error.is_unsettled
        return self.request


class BlockingSubscriptions(BlockingCalls[AsyncSubscriptions]):
    """The subscriptions of one server, from synchronous code."""

    create = blocking(AsyncSubscriptions.create)
    get = blocking(AsyncSubscriptions.get)
    walk = blocking_iterator(AsyncSubscriptions.walk)
    delete = blocking(AsyncSubscriptions.delete)
    add_streams = blocking(AsyncSubscriptions.add_streams)
    remove_stream = blocking(AsyncSubscriptions.remove_stream)
    claim = blocking(AsyncSubscriptions.claim)
    ack = blocking(AsyncSubscriptions.ack)
    release = blocking(AsyncSubscriptions.release)
    jwks = blocking(AsyncSubscriptions.jwks)

"""HTTP of subscriptions: the control routes under `/v1/stream/__ds`.

| route | method | admitted by |
|---|---|---|
| `subscriptions/:id` | PUT, GET, DELETE | credential |
| `subscriptions/:id/streams`, `subscriptions/:id/streams/:path` | POST; DELETE | credential |
| `subscriptions/:id/claim` | POST | credential |
| `subscriptions/:id/callback`, `.../ack`, `.../release` | POST | the token of the wake |
| `jwks.json` | GET | open |

A credential must reach everything that the subscription follows, and its wake stream. PUT, `streams` and `claim` need
the roles of reading and writing. A subscription that a credential does not reach is answered as one that is not there.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson

from semel.engine.contract import EngineError, Write
from semel.kernel.errors import Refusal, Refused
from semel.kernel.keys import pack, time_ordered_id
from semel.server.auth.authentication import admit
from semel.server.auth.principals import Principal, Role
from semel.server.context import Context, caller_of
from semel.server.http.answer import CLOSE, JSON, NO_STORE, Answer, Header
from semel.server.http.body import Bodies
from semel.server.http.problem import problem_headers
from semel.server.http.request import Request
from semel.server.ops.store_metrics import MEASURE_SECONDS
from semel.server.settings import settings_of
from semel.server.thread_pool import apart
from semel.surfaces.streams.metrics import StreamsMetrics
from semel.surfaces.streams.settings import StreamsSettings
from semel.surfaces.streams.subscriptions.commands import (
    NamedStream,
    StreamsLink,
    StreamUnlink,
    SubscriptionCommand,
    SubscriptionDelete,
    SubscriptionKept,
    SubscriptionLimits,
    SubscriptionPut,
    WakeAck,
    WakeAcked,
    WakeClaim,
    WakeClaimed,
    WakeRelease,
)
from semel.surfaces.streams.subscriptions.contract import SubscriptionContract
from semel.surfaces.streams.subscriptions.delivery import SubscriptionSecrets, WebhookDelivery
from semel.surfaces.streams.subscriptions.dispatcher import SubscriptionDispatcher
from semel.surfaces.streams.subscriptions.listing import list_subscriptions, reaches
from semel.surfaces.streams.subscriptions.reading import (
    SubscriptionRecord,
    explicit_paths,
    find,
    matched_count,
    pending_count,
    record,
    signing_keys,
    wake_cost,
)
from semel.surfaces.streams.subscriptions.rules.configuration import MISSING, TAKEN
from semel.surfaces.streams.subscriptions.rules.leases import OTHER_TOKEN
from semel.surfaces.streams.subscriptions.rules.webhook_url import AddressPolicy, check_url
from semel.surfaces.streams.subscriptions.signature import jwks_of, parse_token
from semel.surfaces.streams.subscriptions.tables import PULL_WAKE, WEBHOOK, SubscriptionRow
from semel.surfaces.streams.subscriptions.webhook_client import WebhookClient
from semel.surfaces.streams.subscriptions.wire import (
    LeaseCall,
    checked_name,
    claim_body,
    error_body,
    invalid,
    parse_lease_call,
    parse_put,
    parse_streams,
    parse_worker,
    patterns_of,
    record_body,
)

CONTROL = b"/v1/stream/__ds"
MAX_ID_BYTES = 256
UPLOADS_BYTES = 16 * 1024 * 1024
MAX_BODY_BYTES = 256 * 1024
"""The largest body of a request; a larger one gets 413."""
MAX_STREAMS = 1_000
"""Explicit streams of one subscription; more get 400."""
MAX_ACKS = 1_000
"""Acknowledgements of one callback or ack; more get 400."""
MAX_WEBHOOK_ANSWER_BYTES = 64 * 1024
"""The largest answer to a webhook; a larger one is a failed attempt."""
WEBHOOKS_AT_ONCE = 32
"""Attempts that this node makes at the same time."""
COUNTED = 10_000

_JWKS: tuple[Header, ...] = (
    (b"content-type", b"application/jwk-set+json"),
    (b"cache-control", b"public, max-age=300"),
)
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_METHODS = {
    "": ("PUT", "GET", "DELETE"),
    "streams": ("POST",),
    "callback": ("POST",),
    "claim": ("POST",),
    "ack": ("POST",),
    "release": ("POST",),
}


def is_control(raw_path: bytes) -> bool:
    """Whether a path is one of the control routes, or below them."""
    return raw_path.startswith(CONTROL) and raw_path[len(CONTROL) : len(CONTROL) + 1] in (b"", b"/")


def control_error(refusal: Refusal) -> Answer:
    """The answer for a refusal on a control route."""
    headers = [JSON, *problem_headers(refusal)[1:]]
    return Answer(refusal.status, headers, error_body(refusal))


class SubscriptionsHttp:
    """The handlers of the control routes, and the background work of subscriptions."""

    def __init__(self, context: Context, metrics: StreamsMetrics) -> None:
        settings = settings_of(context.settings, StreamsSettings)
        self._context = context
        self._engine = context.engine
        self._metrics = metrics
        self._limits = SubscriptionLimits(
            settings.streams_subscriptions, MAX_STREAMS, MAX_ACKS, settings.streams_webhook_ms
        )
        self._contract = SubscriptionContract(self._limits)
        self._public_url = settings.streams_public_url.encode()
        self._bodies = Bodies(MAX_BODY_BYTES, UPLOADS_BYTES)
        self._secrets = SubscriptionSecrets(context.engine, self._contract, context.world)
        is_development = context.settings.is_loopback and not context.settings.needs_token
        self._policy = AddressPolicy(is_development, settings.streams_webhook_private)
        client = WebhookClient(self._policy, settings.streams_webhook_ms / 1_000, MAX_WEBHOOK_ANSWER_BYTES)
        node = f"{socket.gethostname()}:{os.getpid()}:{context.world.random_bytes(4).hex()}".encode()
        delivery = WebhookDelivery(
            context.engine,
            self._contract,
            context.world,
            self._secrets,
            client,
            metrics,
            node,
            WEBHOOKS_AT_ONCE,
        )
        self.dispatcher = SubscriptionDispatcher(context.engine, self._contract, context.world, delivery, metrics)

    async def measure(self) -> None:
        """Read the gauge of pending subscriptions; it has no value while the store cannot be read."""
        try:
            async with asyncio.timeout(MEASURE_SECONDS):
                count = await self._engine.read(partial(pending_count, limit=COUNTED))
        except (EngineError, TimeoutError):
            self._metrics.pending_subscriptions = None
        else:
            self._metrics.pending_subscriptions = count

    async def handle(self, request: Request) -> Answer:
        """Answer a request to a control route."""
        parts = request.raw_path[len(CONTROL) :].split(b"/")[1:]
        if parts == [b"jwks.json"]:
            _check_method(request, ("GET", "HEAD"))
            await self._secrets.get()
            keys = await self._engine.read(signing_keys)
            return Answer(200, [*_JWKS], jwks_of(keys, self._context.world.wall_ms()))
        if len(parts) < 2 or parts[0] != b"subscriptions":
            raise _nothing_here()
        given, call = _id(parts[1]), parts[2].decode("latin-1") if len(parts) > 2 else ""
        if call == "streams" and len(parts) > 3:
            return await self._unlink(request, given, b"/".join(parts[3:]))
        if call not in _METHODS or len(parts) > 3 or (len(parts) == 3 and not call):
            raise _nothing_here()
        _check_method(request, _METHODS[call])
        return await self._call(request, given, call)

    async def _call(self, request: Request, given: bytes, call: str) -> Answer:
        if call == "":
            if request.method == "PUT":
                return await self._put(request, given)
            return await (self._show if request.method == "GET" else self._delete)(request, given)
        if call == "streams":
            return await self._link(request, given)
        if call == "claim":
            return await self._claim(request, given)
        return await self._lease_call(request, given, call)

    async def _put(self, request: Request, given: bytes) -> Answer:
        principal = self._principal(request, Role.WRITE, Role.READ)
        body = await self._body(request)
        check = partial(check_url, policy=self._policy)
        draft = await apart(len(body), parse_put, body, self._limits.explicit_streams, check)
        wake = [] if draft.wake_stream is None else [draft.wake_stream]
        _check_reach(principal, Role.WRITE, [*patterns_of(draft), *wake])
        keys = await self._secrets.get()
        cost = 1 + len(draft.streams)
        if draft.pattern is not None:
            cost += await self._engine.read(partial(matched_count, pattern=draft.pattern))
        world, base = self._context.world, self._base(request)
        command = draft.command(given, time_ordered_id(world.wall_ms(), world.random_bytes(10)), base)
        kept: SubscriptionKept = await self._submit(request, self._owned(request, command), len(body), cost)
        # Streams that others have added since would be shown, too.
        if not kept.is_new and not await self._is_reached(principal, Role.WRITE, kept.row):
            raise Refused.of(TAKEN)
        shown = await self._engine.read(partial(record, name=pack(given)))
        rendered = await self._rendered(shown or SubscriptionRecord(kept.row, (), False), base, keys.key.kid)
        if not kept.is_new:
            return Answer(200, [JSON, NO_STORE], rendered)
        return Answer(201, [JSON, NO_STORE, (b"location", base + request.raw_path)], rendered)

    def _owned(self, request: Request, command: SubscriptionPut) -> SubscriptionPut:
        """The command with its principal, if it has one, and the quota of that principal."""
        limits = self._context.quotas.limits_of(request.principal)
        return command._replace(creator=request.principal.encode(), most_own=limits.subscriptions)

    async def list(self, principal: Principal, after: bytes, limit: int) -> bytes:
        """A page of the subscriptions that the caller may read, as JSON."""
        return await list_subscriptions(self._engine, principal, after, limit, self._limits.explicit_streams)

    async def _show(self, request: Request, given: bytes) -> Answer:
        principal = self._principal(request, Role.READ)
        await self._reached(principal, Role.READ, given)
        shown = await self._engine.read(partial(record, name=pack(given)))
        if shown is None:
            raise Refused.of(MISSING)
        keys = await self._secrets.get()
        return Answer(200, [JSON, NO_STORE], await self._rendered(shown, self._base(request), keys.key.kid))

    async def _rendered(self, shown: SubscriptionRecord, base: bytes, kid: bytes) -> bytes:
        return await apart(128 * len(shown.links), record_body, shown, base, kid.decode())

    async def _delete(self, request: Request, given: bytes) -> Answer:
        principal = self._principal(request, Role.WRITE)
        row = await self._engine.read(partial(find, name=pack(given)))
        if row is not None and await self._is_reached(principal, Role.WRITE, row):
            await self._submit(request, SubscriptionDelete(pack(given)))
        return Answer(204, [])

    async def _link(self, request: Request, given: bytes) -> Answer:
        principal = self._principal(request, Role.WRITE, Role.READ)
        body = await self._body(request)
        streams = await apart(len(body), parse_streams, body, self._limits.explicit_streams)
        row = await self._reached(principal, Role.WRITE, given)
        _check_reach(principal, Role.WRITE, [one.path for one in streams])
        await self._submit(request, StreamsLink(row.name, row.life, streams), len(body), 2 * len(streams))
        return Answer(204, [])

    async def _unlink(self, request: Request, given: bytes, raw: bytes) -> Answer:
        _check_method(request, ("DELETE",))
        principal = self._principal(request, Role.WRITE)
        name = checked_name(_decoded(raw), "The name of the stream")
        row = await self._reached(principal, Role.WRITE, given)
        await self._submit(request, StreamUnlink(row.name, row.life, NamedStream(pack(name), name)))
        return Answer(204, [])

    async def _claim(self, request: Request, given: bytes) -> Answer:
        principal = self._principal(request, Role.WRITE, Role.READ)
        worker = parse_worker(await self._body(request))
        row = await self._reached(principal, Role.WRITE, given)
        await self.dispatcher.drain()
        wake_id = self._context.world.random_bytes(16).hex().encode()
        command = WakeClaim(row.name, row.life, worker, wake_id)
        cost = await self._engine.read(partial(wake_cost, life=row.life))
        claimed: WakeClaimed = await self._submit(request, command, cost=cost)
        token = await self._secrets.token(claimed.row)
        size = 256 * len(claimed.items)
        return Answer(200, [JSON, NO_STORE], await apart(size, claim_body, claimed, token))

    async def _lease_call(self, request: Request, given: bytes, call: str) -> Answer:
        """A callback, an ack or a release: admitted by the token of the wake."""
        keys = await self._secrets.get()
        token = parse_token(keys.secret, _bearer(request), self._context.world.wall_ms())
        body = await self._body(request)
        asked: LeaseCall = await apart(len(body), parse_lease_call, body, self._limits.acks)
        if token.name != pack(given):
            raise Refused.of(OTHER_TOKEN)
        proof = asked.proof(token.name, token.life, token.generation)
        if call == "release":
            await self._submit(request, WakeRelease(proof))
            return Answer(204, [])
        kind = WEBHOOK if call == "callback" else PULL_WAKE
        if asked.done:
            await self.dispatcher.drain()  # so that `next_wake` knows what was appended before this call
        command = WakeAck(proof, kind, asked.acks, asked.done)
        acked: WakeAcked = await self._submit(request, command, len(body), 1 + 2 * len(asked.acks))
        return Answer(200, [JSON, NO_STORE], orjson.dumps({"ok": True, "next_wake": acked.next_wake}))

    async def _submit(self, request: Request, command: SubscriptionCommand, size: int = 0, cost: int = 1) -> Any:
        answer = await self._engine.submit(Write(self._contract, command, size, cost), caller_of(request))
        if isinstance(answer, Refusal):
            if answer.code == "QUOTA_EXCEEDED":
                self._context.quotas.note_subscription(request.principal)
            raise Refused.of(answer)
        return answer

    async def _body(self, request: Request) -> bytes:
        body = await self._bodies.read(request)
        if body is None:
            detail = f"The body has more than {self._bodies.max_bytes} bytes; send a smaller one."
            raise Refused("PAYLOAD_TOO_LARGE", detail, headers=(CLOSE,))
        return body

    def _principal(self, request: Request, *roles: Role) -> Principal:
        """The caller, if it has all of these roles; what is followed is told, so that needs the role of reading."""
        principal = admit(self._context, request)
        for role in roles:
            if not principal.has(role):
                raise Refused("FORBIDDEN", f"This credential may not {role.value} subscriptions.")
        return principal

    async def _reached(self, principal: Principal, role: Role, given: bytes) -> SubscriptionRow:
        """The subscription. One out of reach is missing, too: else answers tell which ids others use."""
        row = await self._engine.read(partial(find, name=pack(given)))
        if row is None or not await self._is_reached(principal, role, row):
            raise Refused.of(MISSING)
        return row

    async def _is_reached(self, principal: Principal, role: Role, row: SubscriptionRow) -> bool:
        """Whether a principal reaches all that a subscription follows."""
        if principal.scopes is None:
            return True
        most = self._limits.explicit_streams + 1
        named = await self._engine.read(partial(explicit_paths, life=row.life, limit=most))
        return reaches(principal, role, [one for one in (row.pattern, row.wake_stream, *named) if one is not None])

    def _base(self, request: Request) -> bytes:
        """The base URL that the client used, or the configured one, with the prefix of the namespace."""
        prefix = self._context.prefix
        if self._public_url:
            return self._public_url + prefix
        host = (request.fields.get(b"host") or b"").strip()
        if not host:
            address, port = request.server or ("127.0.0.1", 0)
            host = (f"[{address}]:{port}" if ":" in address else f"{address}:{port}").encode()
        return b"%s://%s%s" % (request.scheme.encode(), host, prefix)


def _check_reach(principal: Principal, role: Role, names: Iterable[bytes]) -> None:
    """Refuse a principal that may not use all streams that these names and patterns stand for."""
    if not reaches(principal, role, names):
        raise Refused("FORBIDDEN", "This credential may not use all streams of this subscription.")


def _check_method(request: Request, allowed: Sequence[str]) -> None:
    if request.method not in allowed:
        headers = ((b"allow", ", ".join(allowed).encode()),)
        raise Refused("METHOD_NOT_ALLOWED", f"{request.method} is not used here.", headers=headers)


def _bearer(request: Request) -> bytes | None:
    """The token of a wake, which is sent in Authorization only; None without exactly one."""
    sent = request.fields.all(b"authorization")
    kind, _, token = sent[0].partition(b" ") if len(sent) == 1 else (b"", b"", b"")
    return token.strip() if kind.lower() == b"bearer" else None


def _nothing_here() -> Refused:
    return Refused("NOT_FOUND", "There is nothing at this control path.")


def _decoded(raw: bytes) -> bytes:
    if _BAD_ESCAPE.search(raw):
        raise invalid("The path has a percent sign that is not followed by two hex digits.")
    name = unquote_to_bytes(raw)
    try:
        name.decode()
    except UnicodeDecodeError:
        raise invalid("The path must be UTF-8, percent-encoded where needed.") from None
    return name


def _id(raw: bytes) -> bytes:
    given = _decoded(raw)
    if not 1 <= len(given) <= MAX_ID_BYTES or any(byte < 32 or byte == 127 for byte in given):
        raise invalid(f"The id of a subscription must have 1 to {MAX_ID_BYTES} bytes, and no control characters.")
    return given

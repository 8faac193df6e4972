"""Bodies and paths of subscriptions: JSON to commands, rows to JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from semel.kernel.clock import utc_text
from semel.kernel.errors import Refusal, Refused
from semel.kernel.json.members import MemberReader, is_utf8
from semel.kernel.json.parse import parse
from semel.kernel.json.text import JsonError
from semel.kernel.keys import pack
from semel.surfaces.streams.rules.offsets import parse_offset
from semel.surfaces.streams.subscriptions.commands import (
    LeaseProof,
    NamedStream,
    StreamAck,
    SubscriptionPut,
    WakeClaimed,
    WakeItem,
    WakeStarted,
)
from semel.surfaces.streams.subscriptions.reading import SubscriptionRecord
from semel.surfaces.streams.subscriptions.rules.globs import GlobError, check_pattern, matches
from semel.surfaces.streams.subscriptions.rules.phases import MAX_LEASE_MS
from semel.surfaces.streams.subscriptions.tables import IDLE, LEASED, PULL_WAKE, WAKING, WEBHOOK, SubscriptionRow
from semel.surfaces.streams.wire.headers import MAX_NAME_BYTES, RESERVED_NAME

MIN_LEASE_MS, DEFAULT_LEASE_MS = 1_000, 30_000
MAX_DESCRIPTION = 1_024
MAX_WORKER = 256
MAX_WAKE_ID = 128
MAX_GENERATION = 2**53 - 1
KINDS = {"webhook": WEBHOOK, "pull-wake": PULL_WAKE}
KIND_NAMES = {kind: name for name, kind in KINDS.items()}
PHASE_NAMES = {IDLE: "idle", WAKING: "waking", LEASED: "leased"}


def invalid(detail: str) -> Refused:
    """The refusal of a request that is not understood."""
    return Refused("INVALID_REQUEST", detail)


def _members(body: bytes) -> MemberReader[Refused]:
    try:
        value = parse(body)
    except JsonError as error:
        raise invalid(str(error)) from None
    if not isinstance(value, dict):
        raise invalid("The body must be a JSON object.")
    return MemberReader(value, _refusal)


def _refusal(path: str, rule: str) -> Refused:
    return invalid(f"{path} {rule}.")


def stream_name(text: object, member: str) -> bytes:
    """The name of a stream in a body, without the stream root."""
    if not isinstance(text, str) or not is_utf8(text):
        raise invalid(f"{member} must be the name of a stream.")
    return checked_name(text.encode(), member)


def checked_name(name: bytes, member: str) -> bytes:
    """A name that a stream may have."""
    segments = name.split(b"/")
    if not 1 <= len(name) <= MAX_NAME_BYTES:
        raise invalid(f"{member} must have 1 to {MAX_NAME_BYTES} bytes.")
    if any(byte < 32 or byte == 127 for byte in name) or b"." in segments or b".." in segments:
        raise invalid(f"{member} must not have control characters, nor `.` or `..` as a segment.")
    if segments[0] == RESERVED_NAME:
        raise invalid(f"{member} must not begin with {RESERVED_NAME.decode()}.")
    return name


def _streams(reader: MemberReader[Refused], most: int) -> tuple[NamedStream, ...]:
    def check(count: int) -> None:
        if count > most:
            raise invalid(f"streams may have at most {most} names.")

    names = {stream_name(one, "streams[]"): None for one in reader.elements("streams", "must be a list", check)}
    return tuple(NamedStream(pack(name), name) for name in names)


class SubscriptionDraft(NamedTuple):
    """The configuration in a PUT."""

    kind: int
    pattern: bytes | None
    streams: tuple[NamedStream, ...]
    url: str | None
    wake_stream: bytes | None
    lease_ttl_ms: int
    description: str | None

    @property
    def config(self) -> bytes:
        """The hash of the configuration in its normal form."""
        parts = (
            self.kind,
            None if self.pattern is None else self.pattern.decode(),
            sorted(one.path.decode() for one in self.streams),
            self.url,
            None if self.wake_stream is None else self.wake_stream.decode(),
            self.lease_ttl_ms,
            self.description,
        )
        return sha256(orjson.dumps(parts)).digest()

    def command(self, given: bytes, life: bytes, base: bytes) -> SubscriptionPut:
        """The command that creates the subscription."""
        return SubscriptionPut(
            name=pack(given),
            life=life,
            id=given,
            kind=self.kind,
            pattern=self.pattern,
            streams=self.streams,
            url=None if self.url is None else self.url.encode(),
            wake_stream=self.wake_stream,
            lease_ttl_ms=self.lease_ttl_ms,
            description=None if self.description is None else self.description.encode(),
            config=self.config,
            base=base,
        )


def parse_put(body: bytes, most_streams: int, check_url: Callable[[str], None]) -> SubscriptionDraft:
    """Parse the body of a PUT."""
    reader = _members(body)
    kind = reader.required("type", lambda value: KINDS.get(value) if isinstance(value, str) else None, _TYPE_RULE)
    pattern = _pattern(reader)
    streams = _streams(reader, most_streams)
    if pattern is None and not streams:
        raise invalid("Give a pattern, or streams, or both.")
    url = wake_stream = None
    if kind == WEBHOOK:
        nested = MemberReader(reader.nested("webhook"), _refusal, "webhook")
        url = nested.string("url", 1, 4_096)
        if url is None:
            raise invalid("webhook.url must be the URL of the receiver.")
        check_url(url)
    else:
        wake_stream = stream_name(reader.string("wake_stream", 1, MAX_NAME_BYTES), "wake_stream")
        if any(one.path == wake_stream for one in streams) or (pattern and matches(pattern, wake_stream)):
            raise invalid("A subscription cannot follow its own wake_stream; choose a name outside of the pattern.")
    lease_ttl_ms = reader.integer("lease_ttl_ms", MIN_LEASE_MS, MAX_LEASE_MS) or DEFAULT_LEASE_MS
    description = reader.string("description", 0, MAX_DESCRIPTION)
    reader.check_utf8("description", description or "")
    return SubscriptionDraft(kind, pattern, streams, url, wake_stream, lease_ttl_ms, description)


_TYPE_RULE = "must be webhook or pull-wake"


def _pattern(reader: MemberReader[Refused]) -> bytes | None:
    text = reader.string("pattern", 1, MAX_NAME_BYTES)
    if text is None:
        return None
    pattern = stream_name(text, "pattern")
    try:
        check_pattern(pattern)
    except GlobError as error:
        raise invalid(str(error)) from None
    return pattern


def parse_streams(body: bytes, most: int) -> tuple[NamedStream, ...]:
    """Parse the body that adds streams."""
    streams = _streams(_members(body), most)
    if not streams:
        raise invalid("streams must be a list of names.")
    return streams


def parse_worker(body: bytes) -> bytes:
    """Parse the body of a claim."""
    worker = _members(body).string("worker", 1, MAX_WORKER)
    if worker is None or not is_utf8(worker):
        raise invalid("worker must be the name of the worker.")
    return worker.encode()


class LeaseCall(NamedTuple):
    """The body of a callback, an ack or a release."""

    generation: int
    wake_id: bytes
    acks: tuple[StreamAck, ...]
    done: bool

    def proof(self, name: bytes, life: bytes, token_generation: int) -> LeaseProof:
        """The proof of the lease, with the contents of the token."""
        return LeaseProof(name, life, token_generation, self.generation, self.wake_id)


def parse_lease_call(body: bytes, most_acks: int) -> LeaseCall:
    """Parse the body of a callback, an ack or a release."""
    reader = _members(body)
    generation = reader.integer("generation", 0, MAX_GENERATION)
    wake_id = reader.string("wake_id", 1, MAX_WAKE_ID)
    if generation is None or wake_id is None or not is_utf8(wake_id):
        raise invalid("Give the wake_id and the generation of the wake.")

    def check(count: int) -> None:
        if count > most_acks:
            raise invalid(f"acks may have at most {most_acks} elements; acknowledge in several calls.")

    acks = tuple(map(_ack, reader.elements("acks", "must be a list", check)))
    return LeaseCall(generation, wake_id.encode(), acks, bool(reader.flag("done")))


def _ack(value: object) -> StreamAck:
    if not isinstance(value, dict):
        raise invalid("acks[] must be an object with stream and offset.")
    name = stream_name(value.get("stream", value.get("path")), "acks[].stream")
    text = value.get("offset")
    if not isinstance(text, str):
        raise invalid("acks[].offset must be the last processed offset.")
    try:
        offset = None if text in ("-1", "now") else parse_offset(text.encode("utf-8", "replace"))
    except ValueError:
        offset = None
    return StreamAck(pack(name), name, offset)


def is_done(body: bytes) -> bool:
    """Whether the answer of a receiver says `{"done":true}`."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(value, dict) and value.get("done") is True


def root_of(base: bytes) -> str:
    """The URL of the control routes."""
    return f"{base.decode()}/v1/stream/__ds"


def _link_type(is_explicit: bool) -> str:
    return "explicit" if is_explicit else "glob"


def record_body(record: SubscriptionRecord, base: bytes, kid: str) -> bytes:
    """A subscription as it is shown."""
    row = record.row
    given = row.id.decode()
    shown: dict[str, Any] = {
        "id": given,
        "subscription_id": given,
        "type": KIND_NAMES[row.kind],
        "pattern": None if row.pattern is None else row.pattern.decode(),
        "streams": [
            {
                "path": link.path.decode("utf-8", "replace"),
                "link_type": _link_type(link.is_explicit),
                "acked_offset": link.acked.decode(),
                "tail_offset": None if link.tail is None else link.tail.decode(),
            }
            for link in record.links
        ],
    }
    if record.is_truncated:
        shown["streams_truncated"] = True
    if row.url is not None:
        signing = {"alg": "ed25519", "kid": kid, "jwks_url": f"{root_of(base)}/jwks.json"}
        shown["webhook"] = {"url": row.url.decode(), "signing": signing}
    if row.wake_stream is not None:
        shown["wake_stream"] = row.wake_stream.decode()
    shown["lease_ttl_ms"] = row.lease_ttl_ms
    shown["created_at"] = utc_text(row.created_at)
    shown["status"] = "failed" if row.failed else "active"
    shown["description"] = None if row.description is None else row.description.decode()
    shown["wake"] = wake_facts(row, record.wait_ms)
    return orjson.dumps(shown)


def wake_facts(row: SubscriptionRow, wait_ms: int | None) -> dict[str, Any]:
    """The wake of a subscription: its phase, its number, failed attempts, its worker, and its next action."""
    return {
        "phase": PHASE_NAMES[row.phase],
        "generation": row.generation,
        "attempts": row.attempts,
        "worker": row.holder.decode("utf-8", "replace") or None,
        "next_action_in_ms": wait_ms,
    }


def summary(row: SubscriptionRow, wait_ms: int | None) -> dict[str, Any]:
    """A subscription as a list shows it."""
    return {
        "id": row.id.decode(),
        "type": KIND_NAMES[row.kind],
        "pattern": None if row.pattern is None else row.pattern.decode(),
        "webhook_url": None if row.url is None else row.url.decode(),
        "wake_stream": None if row.wake_stream is None else row.wake_stream.decode(),
        "created_at": utc_text(row.created_at),
        "status": "failed" if row.failed else "active",
        "wake": wake_facts(row, wait_ms),
    }


def _items(items: Iterable[WakeItem]) -> list[dict[str, Any]]:
    return [
        {
            "path": one.path.decode("utf-8", "replace"),
            "link_type": _link_type(one.is_explicit),
            "acked_offset": one.acked.decode(),
            "tail_offset": one.tail.decode(),
            "has_pending": one.acked < one.tail,
        }
        for one in items
    ]


def callback_url(row: SubscriptionRow) -> str:
    """Where the receiver of a webhook calls back."""
    return f"{root_of(row.base)}/subscriptions/{quote(row.id.decode(), safe='')}/callback"


def webhook_body(started: WakeStarted, token: str) -> bytes:
    """The body of a webhook."""
    row = started.row
    return orjson.dumps(
        {
            "subscription_id": row.id.decode(),
            "wake_id": row.wake_id.decode(),
            "generation": row.generation,
            "streams": _items(started.items),
            "callback_url": callback_url(row),
            "callback_token": token,
        }
    )


def claim_body(claimed: WakeClaimed, token: str) -> bytes:
    """The answer to a claim."""
    row = claimed.row
    return orjson.dumps(
        {
            "wake_id": row.wake_id.decode(),
            "generation": row.generation,
            "token": token,
            "streams": _items(claimed.items),
            "lease_ttl_ms": row.lease_ttl_ms,
        }
    )


def error_body(refusal: Refusal) -> bytes:
    """The body of a refusal on a control route."""
    return orjson.dumps({"error": {"code": refusal.name, "message": refusal.message, **refusal.facts}})


def patterns_of(draft: SubscriptionDraft) -> Sequence[bytes]:
    """The names and patterns that a draft follows."""
    return [*([] if draft.pattern is None else [draft.pattern]), *(one.path for one in draft.streams)]

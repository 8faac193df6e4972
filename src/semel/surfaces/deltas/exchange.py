"""One HTTP exchange: request, answer, streamed answer, and failures as refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson

from semel.engine.contract import EngineError, FaultError, OutcomeUnknownError
from semel.kernel.errors import REGISTRY, Refusal
from semel.server.http.answer import JSON, SECURITY, Answer, BodyWriter, Header, StreamedAnswer
from semel.surfaces.deltas.access import SURFACE, DeltaCaller
from semel.surfaces.deltas.commands import DeltaRefusal
from semel.surfaces.deltas.wire.answers import refusal_body

API_VERSION: Header = (b"api-version", b"v1")
STATIC: tuple[Header, ...] = (
    *SECURITY,
    (b"access-control-expose-headers", b"API-Version, Retry-After, X-Checkpoint-Hlc, X-Request-Id"),
)
NO_PATH = DeltaRefusal("NOT_FOUND", "There is nothing at this path, or not for this method.")
RETRY_SECONDS = 1
"""Retry-After in seconds, if a refusal has none."""
BUFFER_BYTES = 64 * 1024
"""Bytes that the transport buffers for a client that does not read, before it applies back pressure."""
PIECE_BYTES = 256 * 1024
"""Bytes that are passed to the transport at once."""


class DeltaRequest(NamedTuple):
    """An HTTP call: the principal, the gateway and the input."""

    asked: DeltaCaller
    gateway: str
    """Empty where the path names none."""
    query: bytes
    body: bytes
    is_head: bool = False
    """Whether only the head of the answer is sent: then nothing counts as delivered."""


Call = Callable[[DeltaRequest], Awaitable[Answer | StreamedAnswer]]


async def send_pieces(body: bytes, writer: BodyWriter) -> None:
    """Send a body; when this returns, next to nothing of it waits for the client to read."""
    for start in range(0, len(body), PIECE_BYTES):
        await writer.write(body[start : start + PIECE_BYTES])
    if len(body) > BUFFER_BYTES:
        await writer.write(b"")


def answer_json(facts: Any) -> Answer:
    """A JSON answer."""
    return Answer(200, [JSON], orjson.dumps(facts))


def refuse(refusal: DeltaRefusal, request_id: bytes, *more: Header) -> Answer:
    """A refusal as an answer, with Retry-After where that helps."""
    status = refusal.status or REGISTRY[f"{SURFACE}:{refusal.code}"].status
    headers = [JSON, *more]
    if status in (429, 503):
        headers.append((b"retry-after", b"%d" % max(1, refusal.retry_after or RETRY_SECONDS)))
    return Answer(status, headers, refusal_body(refusal, request_id.decode()))


def engine_refusal(error: EngineError) -> DeltaRefusal:
    """The refusal for an engine error: the write was not done, or its outcome is unknown."""
    if isinstance(error, FaultError):
        return internal_refusal(error.error_id)
    if isinstance(error, OutcomeUnknownError):
        return DeltaRefusal("OUTCOME_UNKNOWN", f"{error} Push the same deltas again: none of them counts twice.")
    return DeltaRefusal("BACKPRESSURE_ERROR", f"{error} Try again in a moment.")


def internal_refusal(error_id: str) -> DeltaRefusal:
    """The refusal for an internal fault; the log has the details under the id."""
    return DeltaRefusal(
        "INTERNAL_ERROR", f"Something went wrong here; push the same deltas again. Error id {error_id}."
    )


def server_refusal(refusal: Refusal) -> DeltaRefusal:
    """What a refusal by the server itself is here, whatever the surface: a credential, or too many uploads."""
    if refusal.kind.status == 401:
        return DeltaRefusal("AUTH_ERROR", refusal.message)
    return DeltaRefusal("BACKPRESSURE_ERROR", refusal.message)

"""One HTTP exchange: request, answer, streamed answer, and failures as refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import orjson

from semel.engine.contract import EngineError, FaultError, OutcomeUnknownError
from semel.kernel.errors import REGISTRY, Refusal
from semel.server.http.answer import JSON, SECURITY, Answer, BodyWriter, Header, StreamedAnswer
from semel.server.http.problem import retry_after
from semel.surfaces.deltas.access import DeltaCaller
from semel.surfaces.deltas.wire.answers import refusal_body

API_VERSION: Header = (b"api-version", b"v1")
STATIC: tuple[Header, ...] = (
    *SECURITY,
    (b"access-control-expose-headers", b"API-Version, Retry-After, X-Checkpoint-Hlc, X-Request-Id"),
)
NO_PATH = Refusal("deltas:NOT_FOUND", "There is nothing at this path, or not for this method.")
_SERVER_CODES = {"UNAUTHORIZED": "AUTH_ERROR", "OVERLOADED": "BACKPRESSURE_ERROR"}
"""Codes of the server that have another name in deltas."""
BUFFER_BYTES = 64 * 1024
"""Bytes that the transport buffers for a client that does not read, before it applies back pressure."""
PIECE_BYTES = 256 * 1024
"""Limit of bytes that are passed to the transport at once."""


class DeltaRequest(NamedTuple):
    """An HTTP call: the principal, the gateway and the input."""

    asked: DeltaCaller
    gateway: str
    """Empty if the path names no gateway."""
    query: bytes
    body: bytes
    is_head: bool = False
    """Whether only the head of the answer is sent: then no entry counts as delivered."""


Call = Callable[[DeltaRequest], Awaitable[Answer | StreamedAnswer]]


async def send_pieces(body: bytes, writer: BodyWriter) -> None:
    """Send a body. On return, almost all of it has been read by the client."""
    for start in range(0, len(body), PIECE_BYTES):
        await writer.write(body[start : start + PIECE_BYTES])
    if len(body) > BUFFER_BYTES:
        await writer.write(b"")


def answer_json(facts: Any) -> Answer:
    """A JSON answer."""
    return Answer(200, [JSON], orjson.dumps(facts))


def refuse(refusal: Refusal, request_id: bytes) -> Answer:
    """A refusal as an answer, with Retry-After if a retry can succeed."""
    headers = [JSON, *refusal.headers]
    if refusal.status in (429, 503):
        headers.append(retry_after(refusal))
    return Answer(refusal.status, headers, refusal_body(refusal, request_id.decode()))


def engine_refusal(error: EngineError) -> Refusal:
    """The refusal for an engine error: the write was not done, or its outcome is unknown."""
    if isinstance(error, FaultError):
        return internal_refusal(error.error_id)
    if isinstance(error, OutcomeUnknownError):
        return Refusal("deltas:OUTCOME_UNKNOWN", f"{error} Push the same deltas again: none of them counts twice.")
    return Refusal("deltas:BACKPRESSURE_ERROR", f"{error} Try again in a moment.")


def internal_refusal(error_id: str) -> Refusal:
    """The refusal for an internal fault; the log has the details under the id."""
    return Refusal(
        "deltas:INTERNAL_ERROR", f"Something went wrong here; push the same deltas again. Error id {error_id}."
    )


def own_refusal(refusal: Refusal) -> Refusal:
    """A refusal of the server with the code of deltas; a path of the other listener becomes "not found"."""
    if refusal.code.startswith("deltas:"):
        return refusal
    named = f"deltas:{_SERVER_CODES.get(refusal.code, refusal.code)}"
    return refusal._replace(code=named if named in REGISTRY else "deltas:NOT_FOUND")

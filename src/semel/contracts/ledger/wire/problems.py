"""Refusals as problem documents: with the name of a gRPC status, and an error code of the ledger."""

from __future__ import annotations

from typing import Any

import orjson

from semel.contracts.ledger.commands import Refusal
from semel.contracts.ledger.refusals import NUMBERS
from semel.kernel.errors import REGISTRY, ErrorKind


def kind_of(refusal: Refusal) -> ErrorKind:
    """The row of the registry."""
    return REGISTRY[f"ledger:{refusal.code}"]


def error_code(code: str) -> str:
    """The number by which clients know a refusal; its name, where it has none."""
    return str(NUMBERS[code]) if code in NUMBERS else code.upper()


def problem_body(refusal: Refusal) -> bytes:
    """The document."""
    kind = kind_of(refusal)
    document: dict[str, Any] = {
        "type": kind.type,
        "title": kind.title,
        "status": kind.status,
        "code": kind.grpc.name,
        "error_code": error_code(refusal.code),
        "detail": refusal.message,
        "retry": kind.retry.value,
    }
    if refusal.retry_after_ms is not None:
        document["retry_after_ms"] = refusal.retry_after_ms
    if refusal.context:
        document["context"] = dict(refusal.context)
    return orjson.dumps(document)

"""Refusals of jobs: `{"ok": false, "error": code, "message": sentence}` and the facts of the case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import orjson

from semel.contracts.jobs.commands import Refusal
from semel.kernel.errors import REGISTRY


class RefusedJob(Exception):  # noqa: N818 - it is an answer, not a fault
    """Carries a refusal out of a parser."""

    def __init__(
        self, code: str, message: str, facts: Mapping[str, Any] | None = None, *, is_fault: bool = False
    ) -> None:
        super().__init__(message)
        self.refusal = Refusal(f"jobs:{code}", message, facts or {})
        self.is_fault = is_fault
        """Whether it is this side that is at fault, whatever the code says otherwise."""

    @classmethod
    def of(cls, refusal: Refusal) -> Self:
        """A verdict of the rules as an exception."""
        refused = cls("", refusal.message)
        refused.refusal = refusal
        return refused


def invalid(field: str, message: str) -> RefusedJob:
    """A field that cannot be used; the message is a sentence that names it."""
    return RefusedJob("invalid_request", message, {"field": field})


def refusal_body(refusal: Refusal) -> bytes:
    """The JSON of a refusal."""
    kind = REGISTRY[refusal.code]
    return orjson.dumps({"ok": False, "error": kind.name, "message": refusal.message, **refusal.facts})

"""Errors of commands: each is one sentence for a person and exit code 1.

A refusal's sentence is the server's own: from its problem document, from the smaller objects that jobs (`error` and
`message`) and deltas (`code` and `error`) answer with, or from the `error` object of a ledger. One that is not
understood (a proxy's page, say) is named by its status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import click

from semel.cli.address import Address
from semel.cli.output import printable

_PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that the same request may not meet again."""

_UNSETTLED = frozenset({500, 502, 503, 504})
"""Statuses after which a write may or may not have been stored, unless the answer says more."""

_ADVICE = {
    "backpressure": "later",
    "idempotency_store_full": "later",
    "overloaded": "later",
    "not_stored": "later",
    "not_durable": "same_key",
    "shutting_down": "same_key",
    "result_integrity_fail": "never",
    "BACKPRESSURE_ERROR": "later",
}
"""Jobs and deltas have codes where the other surfaces say what to do; these say more than their status does."""


class RequestError(click.ClickException):
    """A request without a usable answer. `may_pass` is whether trying again can help."""

    may_pass = False
    is_unsettled = False
    wait_seconds = 0.0


class UnreachableError(RequestError):
    """No answer was received. The request may have taken effect all the same if it was sent."""

    may_pass = True

    def __init__(self, address: Address, cause: Exception, *, was_sent: bool) -> None:
        super().__init__(_lost(address) if was_sent else _nobody(address, cause))
        self.is_unsettled = was_sent


class RefusedError(RequestError):
    """The server said no. `facts` is all that it said, where that was an object."""

    facts: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, status: int, code: str, detail: str, wait_seconds: float, retry: object = None) -> None:
        super().__init__(printable(f"{detail} [{code}]" if code else detail))
        self.status = status
        self.code = code
        # Semel's own answers say what to do; a proxy's must be guessed from the status.
        self.may_pass = retry in ("same_key", "later") if isinstance(retry, str) else status in _PASSING
        self.is_unsettled = retry == "same_key" if isinstance(retry, str) else status in _UNSETTLED
        self.wait_seconds = wait_seconds


def refusal(address: Address, status: int, body: bytes, retry_after: str | None) -> RefusedError:
    """The error behind an answer that is not a success."""
    wait_seconds = float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0
    return refused(address, status, _document(body), wait_seconds)


def refused(address: Address, status: int, document: dict[str, Any], wait_seconds: float) -> RefusedError:
    """The same for an answer that has been read already, such as that to one item of many."""
    code, detail = document.get("code"), document.get("detail") or document.get("title")
    error = document.get("error", document)
    if isinstance(error, str):
        code, detail = (error, document.get("message")) if "message" in document else (code, error)
    elif isinstance(error, dict) and error is not document:
        code, detail = error.get("code"), error.get("message")
    if not isinstance(code, str) or not isinstance(detail, str):
        code, detail = "", f"The server at {address.url} answered {status} {_phrase(status)}."
    told = RefusedError(status, code, detail, wait_seconds, document.get("retry", _ADVICE.get(code)))
    told.facts = document
    return told


def not_semel(address: Address, surface: str = "streams") -> click.ClickException:
    """An answer that lacks what every answer of a surface has."""
    return click.ClickException(f"What answers at {address.url} does not speak the {surface} protocol: check --url.")


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "(unknown status)"


def _nobody(address: Address, cause: Exception) -> str:
    if not address.is_loopback or not isinstance(cause, ConnectionRefusedError):
        return f"No server answers at {address.url} ({printable(str(cause))}): check --url or SEMEL_URL."
    port = "" if address.port == 8788 else f" --port {address.port}"
    return f"No server answers at {address.url}: start one with `semel serve{port}`, or name another with --url."


def _lost(address: Address) -> str:
    return f"The connection to {address.url} was lost before the answer came."

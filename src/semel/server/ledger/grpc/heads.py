"""Request headers of a call: method, deadline, version and credential."""

from __future__ import annotations

import re
from typing import NamedTuple

from semel.contracts.fields import Fields
from semel.contracts.ledger.commands import Refusal
from semel.contracts.ledger.refusals import RefusedLedger, invalid
from semel.server.admission import admit
from semel.server.context import Context
from semel.server.ledger.access import API_KEY
from semel.server.ledger.grpc.frames import GZIP, IDENTITY
from semel.server.principals import Principal, presented

SHORTEST_NANOS = 100_000_000
"""With less than this left there is no point in beginning."""
LONGEST_SECONDS = 366 * 86_400.0
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_NANOS = {b"H": 3_600 * 10**9, b"M": 60 * 10**9, b"S": 10**9, b"m": 10**6, b"u": 1_000, b"n": 1}
_TRACE = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_NO_TRACE = b"0" * 32
_KINDS = (b"application/grpc", b"application/grpc+proto")


class Caller(NamedTuple):
    """The caller, and whether it sent a credential."""

    principal: Principal
    has_token: bool


def http_refusal(fields: Fields) -> bytes | None:
    """The HTTP status for a request that is not gRPC; None for one that is."""
    if fields.get(b":method") != b"POST":
        return b"405"
    kind = (fields.get(b"content-type") or b"").partition(b";")[0].strip().lower()
    return None if kind in _KINDS else b"415"


def check_encoding(fields: Fields) -> None:
    """Refuse a compression that is not known here."""
    encoding = fields.get(b"grpc-encoding") or IDENTITY
    if encoding not in (IDENTITY, GZIP):
        raise RefusedLedger("unimplemented", "Messages may be compressed with gzip, or not at all.")


def seconds_left(fields: Fields) -> float | None:
    """The deadline of the call in seconds; None without one. Too short a deadline is refused at once."""
    value = fields.get(b"grpc-timeout")
    if value is None:
        return None
    found = _TIMEOUT.fullmatch(value)
    if found is None:
        raise invalid("grpc-timeout must be up to eight digits and a unit.", "grpc-timeout")
    left = int(found[1]) * _NANOS[found[2]]
    if left < SHORTEST_NANOS:
        raise RefusedLedger("deadline_exceeded", "The deadline leaves less than 100 ms; nothing was begun.")
    return min(left / 10**9, LONGEST_SECONDS)


def trace_id(fields: Fields) -> bytes | None:
    """The trace that a call belongs to; None when it names none."""
    found = _TRACE.fullmatch(fields.get(b"traceparent") or b"")
    return None if found is None or found[1] == _NO_TRACE else found[1]


def admit_call(context: Context, fields: Fields, path: bytes, peer: str) -> Caller:
    """Judge the credential of a call; it is counted and, where it failed, put into the audit log."""
    principal = admit(context, {"raw_path": path, "client": (peer, 0)}, fields, (API_KEY,))
    return Caller(principal, context.principals.are_known and presented(fields, (API_KEY,)) is not None)


def no_method(path: bytes) -> Refusal:
    """The refusal of a path that leads nowhere."""
    name = path.decode("ascii", "replace")
    return Refusal("unimplemented", f"There is no method {name} here.", {"method": name})

"""Authentication of a request: its credential is checked, counted and, if it fails, written to the audit log.

All surfaces use it, so that a failure is counted exactly once. No part of a credential is written down. Counts and
lines are in memory until the audit log is flushed: a crash loses the last of them, and no decision depends on them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from semel.kernel.clock import World
from semel.kernel.header_fields import HeaderFields
from semel.server.auth.principals import DEVELOPER, AuthOutcome, Principal, Principals, UnauthorizedError, presented
from semel.server.http.request import Request
from semel.server.ops.audit_log import AuditLog
from semel.server.ops.meter import Meter
from semel.server.quotas.accounts import QuotaHolder, Quotas

MAX_SLEEP_SECONDS = 60.0
"""Longest time between two checks for the end of a rotation, in seconds: the system clock may be set meanwhile."""


class Gate(Protocol):
    """The dependencies of authentication; the context of the server implements them."""

    @property
    def principals(self) -> Principals:
        """The known credentials and their principals."""

    @property
    def world(self) -> World:
        """The clocks."""

    @property
    def meter(self) -> Meter:
        """The counters."""

    @property
    def audit(self) -> AuditLog:
        """The audit log."""

    @property
    def quotas(self) -> Quotas:
        """What each principal may use."""


def admit(gate: Gate, request: Request, more: tuple[bytes, ...] = ()) -> Principal:
    """The principal of a request; `UnauthorizedError` without a valid credential.

    `more` are headers, besides the usual ones, that carry a token on one surface.
    """
    principal = authenticate(gate, request.fields, lambda: request.where, more)
    if gate.principals.are_known:
        request.principal = principal.actor
        request.credential = principal
        if gate.quotas.is_on:
            gate.quotas.enter(request.exchange.connection, principal.actor, len(request.body), lambda: request.where)
    return principal


def authenticate(
    gate: Gate, fields: HeaderFields, where: Callable[[], Mapping[str, str]], more: tuple[bytes, ...] = ()
) -> Principal:
    """As `admit`, for header fields alone; `where` is for the audit log."""
    if not gate.principals.are_known:
        return DEVELOPER
    try:
        token = presented(fields, more)
    except UnauthorizedError as refused:
        _failed(gate, refused.outcome, where())
        raise
    return admit_token(gate, token, where)


def admit_token(gate: Gate, token: bytes | None, where: Callable[[], Mapping[str, str]]) -> Principal:
    """As `admit`, for a token that was not sent in a header; `where` is for the audit log."""
    now_ms = gate.world.wall_ms()
    try:
        principal, outcome = gate.principals.judge(token, now_ms)
    except UnauthorizedError as refused:
        _failed(gate, refused.outcome, where())
        raise
    if outcome is AuthOutcome.ACTIVE:
        gate.meter.add("auth_success_active")
    elif outcome is AuthOutcome.NEXT:
        gate.meter.add("auth_success_next")
        rotation = gate.principals.rotation
        if rotation is not None and not rotation.is_over(now_ms):
            gate.audit.note_rarely("TOKEN_ACCEPTED_NEXT", where())
    return principal


def judge_again(gate: Gate, token: bytes | None, connection: QuotaHolder) -> Principal | None:
    """The caller of a request that carries the token of an earlier one, if it is still the active one.

    None for any other outcome, and if a quota may refuse the request: then the request is authenticated in full, with
    its audit line. `admitted_again` counts the success once the request is admitted.
    """
    try:
        principal, outcome = gate.principals.judge(token, gate.world.wall_ms())
    except UnauthorizedError:
        return None
    if outcome is not AuthOutcome.ACTIVE:
        return None
    if gate.quotas.is_on and not gate.quotas.may_enter(connection, principal.actor):
        return None
    return principal


def admitted_again(gate: Gate, connection: QuotaHolder, size: int) -> None:
    """Count a request whose caller `judge_again` has named, with a body of this size."""
    gate.meter.add("auth_success_active")
    if gate.quotas.is_on and connection.account is not None:
        connection.account.spend(size)


def _failed(gate: Gate, outcome: AuthOutcome, where: Mapping[str, str]) -> None:
    """Count a refused credential, and write it to the audit log."""
    gate.meter.add("auth_fail")
    gate.audit.note("AUTH_FAILURE", {"reason": outcome.value, **where})
    if outcome is AuthOutcome.RETIRED:
        gate.meter.add("auth_fail_old_token")
        gate.audit.note_rarely("TOKEN_RETIRED", where)


def denied(gate: Gate, where: Mapping[str, str]) -> None:
    """Write to the audit log that an authenticated caller was refused for lack of rights."""
    if gate.principals.are_known:
        gate.audit.denied(where)


async def watch_rotation(gate: Gate) -> None:
    """Write the end of a rotation to the audit log: once for each process, at that time or at the first start
    after it.
    """
    rotation = gate.principals.rotation
    if rotation is None or rotation.until_ms is None:
        return
    while not rotation.is_over(gate.world.wall_ms()):
        left_seconds = (rotation.until_ms - gate.world.wall_ms()) / 1_000
        await asyncio.sleep(min(max(left_seconds, 0.001), MAX_SLEEP_SECONDS))
    gate.audit.note("TOKEN_ROTATION_FINALIZED", {})

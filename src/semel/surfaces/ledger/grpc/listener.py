"""The ledger on a gRPC listener: its services, its credentials, and the statuses of its refusals."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from time import monotonic

from semel.engine.caller import WaitingCaller
from semel.server.auth.authentication import authenticate
from semel.server.auth.principals import presented
from semel.server.context import Context
from semel.server.grpc.call import GrpcCall, GrpcService
from semel.server.grpc.health import StandardHealth
from semel.server.grpc.logged_server import LoggedGrpcServer
from semel.server.grpc.metadata import GrpcStatus
from semel.server.grpc.server import GrpcServer
from semel.server.grpc.traced_server import TracedGrpcServer
from semel.server.ops.access_log import LoggedRequest
from semel.server.ops.health import readiness
from semel.server.ops.log_facts import KnownOrigin, traceparent_of
from semel.server.ops.request_times import GRPC, LIVE
from semel.surfaces.ledger.access import API_KEY, SURFACE
from semel.surfaces.ledger.exchange import API_VERSION, VERSION, check_version
from semel.surfaces.ledger.grpc.admin_service import AdminService, LedgerHealthService
from semel.surfaces.ledger.grpc.answers import refusal_of, refusal_status
from semel.surfaces.ledger.grpc.read_service import ReadService
from semel.surfaces.ledger.grpc.write_service import WriteService
from semel.surfaces.ledger.proto import ledger_pb2
from semel.surfaces.ledger.refusals import internal_refusal
from semel.surfaces.ledger.service import LedgerCaller, LedgerService

_log = logging.getLogger("semel.ledger")


class LedgerCalls:
    """The ledger of one namespace, as a gRPC listener serves it."""

    def __init__(self, ledger: LedgerService) -> None:
        context = self._context = ledger.context
        self._ledger = ledger
        names = [one.full_name for one in ledger_pb2.DESCRIPTOR.services_by_name.values()]
        services = (
            WriteService(ledger),
            ReadService(ledger),
            AdminService(ledger),
            LedgerHealthService(ledger, self._authenticate),
            StandardHealth(names, lambda: readiness(context) == "ok", lambda: context.is_stopping),
        )
        self.table = GrpcService(
            methods={method.path: method for one in services for method in one.methods()},
            max_message_bytes=context.settings.max_body_bytes,
            max_held_bytes=context.settings.max_uploads_bytes,
            headers=((API_VERSION, b"%d" % VERSION),),
            check_head=check_version,
            authenticate=self._authenticate,
            status_of=self._status_of,
            count=self._count,
            namespace=context.namespace,
        )

    def _authenticate(self, call: GrpcCall) -> LedgerCaller:
        """Authenticate the caller of a call; a failure is counted and written to the audit log."""
        context, fields = self._context, call.fields
        path = (fields.get(b":path") or b"").partition(b"?")[0].decode("latin-1")
        where = {"path": path, "remote_addr": call.connection.peer}
        principal = authenticate(context, fields, lambda: where, (API_KEY,))
        are_known = context.principals.are_known
        if are_known and context.quotas.is_on:
            context.quotas.enter(call.connection, principal.actor, 0, lambda: where)
        caller = WaitingCaller(principal.actor) if are_known else WaitingCaller()
        call.on_end = partial(_leave, caller, call)
        caller.origin = call
        has_token = are_known and presented(fields, (API_KEY,)) is not None
        asked = self._ledger.asked(principal, caller, where, has_token=has_token)
        call.identity = asked
        return asked

    def _status_of(self, call: GrpcCall, error: Exception) -> GrpcStatus:
        refusal = refusal_of(error)
        if refusal is None:
            error_id = self._context.world.random_bytes(8).hex()
            _log.error("fault in a call", extra={"error_id": error_id, **call.log_facts()}, exc_info=error)
            refusal = internal_refusal(error_id)
        self._ledger.audit_trail.refused(refusal)
        return refusal_status(refusal)

    def _count(self, call: GrpcCall, number: int) -> None:
        metrics, method = self._context.metrics, call.method
        metrics.requests[SURFACE, f"grpc {'-' if method is None else method.name}", number] += 1
        is_live = method is not None and (method.takes_many or method.is_live)
        seconds, wire = monotonic() - call.opened_at, LIVE if is_live else GRPC
        metrics.times.of(SURFACE, wire).observe(seconds)
        access = self._context.access
        if access is not None:
            path = "-" if method is None else method.path.decode("latin-1")
            identity = call.identity
            actor = identity.actor if isinstance(identity, LedgerCaller) else ""
            given, trace = call.request_id.decode("latin-1"), traceparent_of(call.fields)
            who, name = (actor, call.connection.peer), self._context.namespace
            access.add(LoggedRequest(SURFACE, wire, "POST", path, number, None, seconds, *who, given, trace, name))


def _leave(caller: WaitingCaller, call: GrpcCall) -> None:
    """The call has ended: its caller keeps what log lines need, and not the call, which refers to the caller."""
    caller.leave()
    caller.origin = KnownOrigin(call.log_facts())


class LedgerGrpc(GrpcServer):
    """The gRPC listener of the ledger, for all namespaces of the process."""

    def __init__(
        self, context: Context, ledger: LedgerService, others: Mapping[str, LedgerService] | None = None
    ) -> None:
        """`others` are the ledgers of the other namespaces by name."""
        namespaces = {name.encode(): LedgerCalls(one).table for name, one in (others or {}).items()}
        super().__init__(context, LedgerCalls(ledger).table, namespaces)


class TracedLedgerGrpc(TracedGrpcServer, LedgerGrpc):
    """The same listener, with spans."""

    surface = SURFACE


class LoggedLedgerGrpc(LoggedGrpcServer, LedgerGrpc):
    """The same listener, on a server that logs requests."""


class LoggedTracedLedgerGrpc(LoggedGrpcServer, TracedLedgerGrpc):
    """The same listener, with both."""


def make_listener(context: Context, ledger: LedgerService, others: Mapping[str, LedgerService]) -> LedgerGrpc:
    """The listener; with spans if tracing is on, and known to the log if requests are logged."""
    tracing = context.tracing
    traced, plain = (
        (TracedLedgerGrpc, LedgerGrpc) if context.access is None else (LoggedTracedLedgerGrpc, LoggedLedgerGrpc)
    )
    listener = (plain if tracing is None else traced)(context, ledger, others)
    if tracing is not None and isinstance(listener, TracedLedgerGrpc):
        listener.trace(tracing)
    context.metrics.connections.append(lambda: {GRPC: len(listener.connections)})
    return listener

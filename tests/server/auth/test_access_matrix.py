"""Every operation, WebSocket message and gRPC method, for every role and reach, compared with one table of rules."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from semel.kernel.errors import Grpc
from semel.server.api_document import operation_groups
from semel.server.openapi.operation import HttpOperation
from semel.surfaces.deltas.wire import frames
from semel.surfaces.events.wire.camel_case import CamelCaseDialect
from semel.surfaces.events.wire.snake_case import SnakeCaseDialect
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.harness.server import HOST
from tests.server.auth.access_rules import GRPC, HTTP, MESSAGES, AccessRule, Reach, Rule, is_allowed
from tests.server.auth.matrix_site import MatrixAnswer, MatrixCaller, MatrixSite, matrix_site

OF_PLACE = "HealthService/Check of a place"
REFUSED_ITEM = re.compile(rb'"reason":"forbidden"|"http":403')
"""How a batch of one item tells that the item is refused."""
LAST = ("deleteSubscription", "deleteVault", "deleteOrg")
"""Operations that remove what others are about."""
OPERATIONS = {one.id: one for group in operation_groups() for one in group.operations}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MatrixSite]:
    with matrix_site(tmp_path_factory.mktemp("matrix")) as site:
        yield site


def denied_first(site: MatrixSite, rule: Rule) -> Iterable[tuple[MatrixCaller, bool]]:
    """The callers, with what they may; those that may come last, because they may remove what the call is about."""
    combined = isinstance(rule, AccessRule) and len(rule.roles) > 1
    judged = [(one, is_allowed(rule, one.role, one.reach)) for one in site.callers if combined or ", " not in one.role]
    return sorted(judged, key=lambda one: one[1])


def is_denied(rule: Rule, answer: MatrixAnswer) -> bool:
    """Whether an answer refuses the caller, as a whole or for its one item."""
    is_hidden = isinstance(rule, AccessRule) and rule.is_hidden
    statuses = (401, 403, 404) if is_hidden else (401, 403)
    return answer.status in statuses or (answer.status == 200 and REFUSED_ITEM.search(answer.body) is not None)


def test_every_operation_message_and_method_has_a_rule() -> None:
    assert set(HTTP) == set(OPERATIONS)
    types = SnakeCaseDialect.types | CamelCaseDialect.types
    framed = {name.lower() for name in ("PUSH", "PULL") if hasattr(frames, name)}
    assert set(MESSAGES) == {f"events {one}" for one in types} | {f"deltas {one}" for one in framed}
    services = pb.DESCRIPTOR.services_by_name
    assert set(GRPC) == {OF_PLACE, *(f"{name}/{one.name}" for name, all_ in services.items() for one in all_.methods)}


def test_the_document_names_the_roles_of_the_rules() -> None:
    for name, rule in HTTP.items():
        if isinstance(rule, AccessRule) and rule.roles:
            said = set(OPERATIONS[name].role.partition(";")[0].split(", "))
            assert said == rule.roles, name


def test_every_operation_lets_in_whom_the_table_says(site: MatrixSite) -> None:
    wrong = []
    for one in sorted(OPERATIONS.values(), key=lambda one: (one.method == "DELETE", one.id in LAST)):
        for method in one.methods:
            wrong += list(differences(site, one, method))
    assert not wrong, "\n".join(wrong)


def differences(site: MatrixSite, one: HttpOperation, method: str) -> Iterator[str]:
    rule = HTTP[one.id]
    for caller, may in denied_first(site, rule):
        answer = site.ask(one, method, caller)
        # A job of the matrix has no result and no members, which is 404 for those who may ask, too.
        is_absent = may and answer.status == 404 and isinstance(rule, AccessRule) and rule.reach is Reach.OWNER
        if (is_denied(rule, answer) == may and not is_absent) or answer.status >= 500:
            expected = "yes" if may else "no"
            yield f"{one.id} {method} {caller.name}: {answer.status}, expected {expected} {answer.body!r:.90}"
        if not caller.role and not may and answer.status not in (401, 403):
            yield f"{one.id} {method} {caller.name}: {answer.status} without a known credential"


# -- WebSockets --------------------------------------------------------------------------------------------------------

PAYLOADS: dict[str, Any] = {
    "sync": {"partitions": ["own-p"], "since_committed_id": 0},
    "submit_events": {"events": [{"id": "own-e9", "partitions": ["own-p"], "event": {"type": "t"}}]},
    "heartbeat": {},
    "disconnect": {"reason": "done"},
}


def said_by_events(site: MatrixSite, kind: str, caller: MatrixCaller) -> str:
    """All that the server says to a message, until it closes or has answered."""

    def message(kind: str, payload: Any) -> str:
        head = {"type": kind, "protocol_version": "1.0", "msg_id": f"{kind}-1", "timestamp": 0}
        return json.dumps(head | {"payload": payload})

    with connect(f"{site.server.url.replace('http', 'ws')}/v1/events") as socket:
        try:
            token = {"token": caller.token} if caller.token else {}
            socket.send(message("connect", {**token, "client_id": caller.name}))
            heard = str(socket.recv(30))
            if '"connected"' not in heard:
                return f"auth_failed {heard}"
            if kind != "connect":
                socket.send(message(kind, PAYLOADS[kind]))
                heard += str(socket.recv(30))
        except ConnectionClosed as closed:
            return f"closed {closed}"
    return heard


def said_by_deltas(site: MatrixSite, kind: str, caller: MatrixCaller) -> str:
    bearer = {"Authorization": f"Bearer {caller.token}"} if caller.token else {}
    address = f"{site.server.url.replace('http', 'ws')}/v1/sync/own-gw/ws"
    try:
        with connect(address, additional_headers=bearer) as socket:
            socket.send(frames.PUSH if kind == "push" else frames.PULL)
            return str(socket.recv(30))
    except InvalidStatus as refused:
        return f"AUTH_ERROR {refused.response.status_code}"
    except ConnectionClosed as closed:
        return str(closed)


def test_every_websocket_message_is_taken_from_whom_the_table_says(site: MatrixSite) -> None:
    wrong = []
    for name, rule in MESSAGES.items():
        surface, kind = name.split()
        for caller, may in denied_first(site, rule):
            heard = (said_by_events if surface == "events" else said_by_deltas)(site, kind, caller)
            denied = any(word in heard for word in ("auth_failed", '"forbidden"', "AUTH_ERROR", "FORBIDDEN"))
            if denied == may:
                wrong.append(f"{name} {caller.name}: expected {'yes' if may else 'no'}: {heard:.200}")
    assert not wrong, "\n".join(wrong)


# -- gRPC --------------------------------------------------------------------------------------------------------------


def request_of(name: str, kind: Any, site: MatrixSite, caller: MatrixCaller) -> bytes:
    """A request that names the place of the matrix, and the caller as the client."""
    message: Any = GetMessageClass(kind)()
    fields = kind.fields_by_name
    if name == "HealthService/Check":
        return b""
    if "organization" in fields:
        message.organization.slug = int(site.known["other_org"])
    if "vault" in fields:
        message.vault.slug = int(site.known["other_vault"])
    if "slug" in fields:
        message.slug.slug = int(site.known["other_org"])
    if "key" in fields:
        message.key = "k"
    if "at_height" in fields and name.endswith("HistoricalRead"):
        message.at_height = 1
    if "writes" in fields or "operations" in fields:
        write = message.writes.add() if "writes" in fields else message
        write.client_id.id = caller.name
        write.idempotency_key = secrets.token_bytes(16)
        added = write.operations.add()
        (added.operations.add() if kind.name == "BatchWriteRequest" else added).set_entity.key = "k"
    elif "client_id" in fields:
        message.client_id.id = caller.name
    return bytes(message.SerializeToString())


def code_of(channel: Any, name: str, sent: bytes, caller: MatrixCaller) -> str:
    """The status of a call; of a stream of writes, that of its one verdict."""
    path, metadata = f"/ledger.v1.{name.partition(' ')[0]}", [("x-api-key", caller.token)] if caller.token else []
    try:
        if name.endswith("StreamWrites"):
            call = channel.stream_stream(path, response_deserializer=pb.WriteVerdict.FromString)
            [verdict] = list(call(iter([sent]), metadata=metadata, timeout=60))
            return "PERMISSION_DENIED" if verdict.refusal.status == Grpc.PERMISSION_DENIED.value else "OK"
        if name.endswith("WatchBlocks"):
            call = channel.unary_stream(path)(sent, metadata=metadata, timeout=60)
            next(call)
            call.cancel()
        else:
            channel.unary_unary(path)(sent, metadata=metadata, timeout=60)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def test_every_grpc_method_is_carried_out_for_whom_the_table_says(site: MatrixSite) -> None:
    wrong = []
    services = pb.DESCRIPTOR.services_by_name
    with grpc.insecure_channel(f"{HOST}:{site.server.grpc_port}") as channel:
        for name in sorted(GRPC, key=lambda one: "Delete" in one):
            service, _, call = name.partition(" ")[0].partition("/")
            kind, rule = services[service].methods_by_name[call].input_type, GRPC[name]
            for caller, may in denied_first(site, rule):
                code = code_of(channel, name, request_of(name, kind, site, caller), caller)
                if (code in ("UNAUTHENTICATED", "PERMISSION_DENIED")) == may or code in ("INTERNAL", "UNIMPLEMENTED"):
                    wrong.append(f"{name} {caller.name}: {code}, expected {'yes' if may else 'no'}")
    assert not wrong, "\n".join(wrong)

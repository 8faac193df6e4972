"""One WebSocket message and one gRPC call of each kind, as a caller of the access matrix."""

from __future__ import annotations

import json
import secrets
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from semel.kernel.errors import Grpc
from semel.kernel.namespace import DEFAULT
from semel.surfaces.deltas.wire import frames
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.server.auth.matrix_site import MatrixCaller, MatrixSite, base_of

PAYLOADS: dict[str, Any] = {
    "sync": {"partitions": ["own-p"], "since_committed_id": 0},
    "submit_events": {"events": [{"id": "own-e9", "partitions": ["own-p"], "event": {"type": "t"}}]},
    "heartbeat": {},
    "disconnect": {"reason": "done"},
}


def _address(site: MatrixSite, namespace: str) -> str:
    return site.server.url.replace("http", "ws") + base_of(namespace)


def said_by_events(site: MatrixSite, kind: str, caller: MatrixCaller, namespace: str = DEFAULT) -> str:
    """All that the server says to a message, until it closes or has answered."""

    def message(kind: str, payload: Any) -> str:
        head = {"type": kind, "protocol_version": "1.0", "msg_id": f"{kind}-1", "timestamp": 0}
        return json.dumps(head | {"payload": payload})

    with connect(f"{_address(site, namespace)}/v1/events") as socket:
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


def said_by_deltas(site: MatrixSite, kind: str, caller: MatrixCaller, namespace: str = DEFAULT) -> str:
    bearer = {"Authorization": f"Bearer {caller.token}"} if caller.token else {}
    try:
        with connect(f"{_address(site, namespace)}/v1/sync/own-gw/ws", additional_headers=bearer) as socket:
            socket.send(frames.PUSH if kind == "push" else frames.PULL)
            return str(socket.recv(30))
    except InvalidStatus as refused:
        return f"AUTH_ERROR {refused.response.status_code}"
    except ConnectionClosed as closed:
        return str(closed)


def said(site: MatrixSite, message: str, caller: MatrixCaller, namespace: str = DEFAULT) -> str:
    """All that the server says to a message, which is named by its surface and its kind."""
    surface, kind = message.split()
    return (said_by_events if surface == "events" else said_by_deltas)(site, kind, caller, namespace)


def request_of(name: str, known: dict[str, str], caller: MatrixCaller) -> bytes:
    """A request that names a place of the matrix, and the caller as the client."""
    service, _, call = name.partition(" ")[0].partition("/")
    kind = pb.DESCRIPTOR.services_by_name[service].methods_by_name[call].input_type
    message: Any = GetMessageClass(kind)()
    fields = kind.fields_by_name
    if name == "HealthService/Check":
        return b""
    if "organization" in fields:
        message.organization.slug = int(known["other_org"])
    if "vault" in fields:
        message.vault.slug = int(known["other_vault"])
    if "slug" in fields:
        message.slug.slug = int(known["other_org"])
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


def answer_of(
    channel: Any, name: str, site: MatrixSite, caller: MatrixCaller, namespace: str = DEFAULT
) -> tuple[str, bytes]:
    """The status of a call and the first message of its answer; of a stream of writes, that of its one verdict."""
    sent = request_of(name, site.known.get(namespace, site.known[DEFAULT]), caller)
    path, metadata = f"/ledger.v1.{name.partition(' ')[0]}", [("x-api-key", caller.token)] if caller.token else []
    metadata += [] if namespace == DEFAULT else [("semel-namespace", namespace)]
    try:
        if name.endswith("StreamWrites"):
            call = channel.stream_stream(path, response_deserializer=pb.WriteVerdict.FromString)
            [verdict] = list(call(iter([sent]), metadata=metadata, timeout=60))
            return ("PERMISSION_DENIED" if verdict.refusal.status == Grpc.PERMISSION_DENIED.value else "OK"), b""
        if name.endswith("WatchBlocks"):
            call = channel.unary_stream(path)(sent, metadata=metadata, timeout=60)
            told = next(call)
            call.cancel()
        else:
            told = channel.unary_unary(path)(sent, metadata=metadata, timeout=60)
    except grpc.RpcError as error:
        return str(error.code().name), b""
    return "OK", bytes(told)

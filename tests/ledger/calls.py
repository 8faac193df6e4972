"""The gRPC wire: calls through plain channels, with the messages of `stub`."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import grpc
from google.protobuf import json_format

from tests.harness.server import HOST
from tests.ledger import stub
from tests.ledger.words import PATIENCE_SECONDS, Answer, Message, Refused, plain

OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
DETAILS = "grpc-status-details-bin"
GZIP = grpc.Compression.Gzip

Metadata = Sequence[tuple[str, str]]


class GrpcWire:
    """A client of one server, or of several nodes in turn. It may be used by many threads."""

    def __init__(self, ports: Sequence[int], metadata: Metadata = (), options: Sequence[tuple[str, int]] = ()) -> None:
        self.ports = ports
        self.metadata = metadata
        self._channels = [grpc.insecure_channel(f"{HOST}:{port}", options=(*OPTIONS, *options)) for port in ports]
        self._turns = itertools.cycle(self._channels)
        self._lock = threading.Lock()

    def channel(self) -> Any:
        """The next node's. It connects with its first call."""
        with self._lock:
            return next(self._turns)

    def ask(self, rpc: str, request: Message, metadata: Metadata = (), timeout: float = PATIENCE_SECONDS) -> Answer:
        """Make a call; the request and the answer are proto3 JSON."""
        answer, headers = self.send(rpc, encoded(rpc, request), metadata, timeout)
        return Answer(decoded(rpc, answer), is_replay=headers.get("idempotency-replayed") == "true", headers=headers)

    def send(
        self,
        rpc: str,
        content: bytes,
        metadata: Metadata = (),
        timeout: float = PATIENCE_SECONDS,
        *,
        compression: Any = None,
        is_ours: bool = True,
    ) -> tuple[bytes, dict[str, str]]:
        """Make a call with these bytes; the answer's bytes, and the metadata that came before them."""
        call = self.channel().unary_unary(stub.path_of(rpc) if "/" not in rpc else rpc)
        try:
            answer, ended = call.with_call(
                content,
                metadata=(*self.metadata, *metadata),
                timeout=timeout,
                compression=compression,
                wait_for_ready=True,
            )
        except grpc.RpcError as error:
            raise refusal_of(error) from error
        headers = dict(ended.initial_metadata())
        if is_ours:
            check_headers(headers)
        return answer, headers

    def begin(self, channel: Any, rpc: str, request: Message) -> Any:
        """Start a call on this channel and do not wait for it."""
        call = channel.unary_unary(stub.path_of(rpc))
        return call.future(encoded(rpc, request), metadata=self.metadata, timeout=PATIENCE_SECONDS, wait_for_ready=True)

    @contextmanager
    def watch(self, request: Message) -> Iterator[Iterator[Message]]:
        """The announcements of blocks as they come; ends the call at the end."""
        call = self.channel().unary_stream(stub.path_of("WatchBlocks"))(
            encoded("WatchBlocks", request),
            metadata=self.metadata,
            timeout=3 * PATIENCE_SECONDS,
            wait_for_ready=True,
        )
        try:
            yield _announced(call)
        finally:
            call.cancel()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()


def encoded(rpc: str, request: Message) -> bytes:
    """A request as its bytes."""
    message = json_format.ParseDict(request, stub.message_class(stub.request_name(rpc))())
    return bytes(message.SerializeToString())


def decoded(rpc: str, answer: bytes) -> Message:
    """The bytes of an answer as proto3 JSON; it may have no field that the tables do not have."""
    message = stub.message_class(stub.answer_name(rpc)).FromString(answer)
    copy = type(message).FromString(answer)
    copy.DiscardUnknownFields()
    assert copy == message, f"fields that no table has: {message}"
    return as_json(message)


def as_json(message: Any) -> Message:
    body: Message = plain(json_format.MessageToDict(message, always_print_fields_with_no_presence=True))
    return body


def check_headers(headers: Message) -> None:
    """What comes before every answer."""
    assert headers["x-ledger-api-version"] == "1", headers
    assert headers["x-request-id"], headers
    assert headers["x-trace-id"], headers


def refusal_of(error: Any) -> Refused:
    """A call that failed, with the details from its trailer."""
    trailers = dict(error.trailing_metadata() or ())
    details: Message = {}
    if DETAILS in trailers:
        message = stub.message_class("ErrorDetails").FromString(trailers[DETAILS])
        details = json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
    details |= {"retry-after-ms": trailers["retry-after-ms"]} if "retry-after-ms" in trailers else {}
    return Refused(error.code().name, error.details() or "", details)


def _announced(call: Any) -> Iterator[Message]:
    try:
        for content in call:
            yield decoded("WatchBlocks", content)
    except grpc.RpcError as error:
        raise refusal_of(error) from error


# -- below gRPC -------------------------------------------------------------------------------------------------------


def connect(port: int) -> socket.socket:
    """A plain connection."""
    return socket.create_connection((HOST, port), PATIENCE_SECONDS)


def drain(line: socket.socket) -> bytes:
    """All that is said until the other side hangs up, or says nothing for a second."""
    line.settimeout(1.0)
    said = b""
    with suppress(OSError):
        while chunk := line.recv(65_536):
            said += chunk
    return said

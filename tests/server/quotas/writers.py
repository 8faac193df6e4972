"""One writer for each surface and wire: it stores numbered things with keys, and counts what is stored."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, Protocol

import grpc
import httpx
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from semel.surfaces.deltas.proto.sync_pb2 import SyncPush
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.deltas.binary.caller import PUSH, row_delta
from tests.deltas.vectors import columns, delta, now_ms, stamp
from tests.events.wire import Peer
from tests.harness.server import HOST
from tests.server.quotas.site import OTHER, Site, token_of

PAD = "x" * 300
"""What each thing has at least, in bytes."""
START_MS = now_ms() - 3_600_000


class Outcome(NamedTuple):
    """The answer to a write: what stays the same in a replay, or None if it was refused at a quota."""

    told: Any
    refusal: Any = None


class Writer(Protocol):
    """Stores things of one principal."""

    def write(self, number: int) -> Outcome:
        """Store the thing with this number."""

    def stored(self) -> int:
        """The number of things that can be read."""


class HttpWriter:
    """Over HTTP; `refusal` is the whole answer."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.name = site, name
        self.client, self.other = site.client(name), site.client(OTHER)
        self.prepare()

    def prepare(self) -> None:
        """Make the place of the things."""

    def close(self) -> None:
        self.client.close()
        self.other.close()

    def outcome(self, answer: httpx.Response, told: Any) -> Outcome:
        assert answer.status_code in (200, 202, 204, 429), answer.text
        return Outcome(None, answer) if answer.status_code == 429 else Outcome(told(answer))


class Streams(HttpWriter):
    def prepare(self) -> None:
        self.other.put(f"/v1/stream/{self.name}", headers={"Content-Type": "text/plain"}).raise_for_status()

    def write(self, number: int) -> Outcome:
        head = {"Content-Type": "text/plain", "Idempotency-Key": f"{self.name}-{number}"}
        answer = self.client.post(f"/v1/stream/{self.name}", content=PAD, headers=head)
        return self.outcome(answer, lambda answer: answer.headers["stream-next-offset"])

    def stored(self) -> int:
        return len(self.other.get(f"/v1/stream/{self.name}").content) // len(PAD)


class ShapedStreams(Streams):
    """On one connection, with heads of one shape, which the server knows by their bytes after the first."""

    def prepare(self) -> None:
        super().prepare()
        self.line = socket.create_connection((HOST, self.site.server.port))

    def close(self) -> None:
        super().close()
        self.line.close()

    def write(self, number: int) -> Outcome:
        head = (
            f"POST /v1/stream/{self.name} HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {token_of(self.name)}\r\n"
            f"Content-Type: text/plain\r\nContent-Length: {len(PAD)}\r\nIdempotency-Key: key-{number:06d}\r\n\r\n{PAD}"
        )
        self.line.sendall(head.encode())
        text = b""
        while b"\r\n\r\n" not in text:
            text += self.line.recv(65_536)
        lines = text.partition(b"\r\n\r\n")[0].decode().lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:])
        if " 429 " in lines[0]:
            rest = int(fields["content-length"]) - len(text.partition(b"\r\n\r\n")[2])
            while rest > 0:
                rest -= len(self.line.recv(65_536))
            return Outcome(None, lines[0])
        assert " 204 " in lines[0], text
        return Outcome(fields["stream-next-offset"])


class Events(HttpWriter):
    def item(self, number: int) -> dict[str, Any]:
        event = {"type": "t", "payload": PAD}
        return {"id": f"{self.name}-{number}", "partitions": [self.name], "event": event}

    def write(self, number: int) -> Outcome:
        answer = self.client.post(f"/v1/events?client_id={self.name}", json={"events": [self.item(number)]})
        return self.outcome(answer, lambda answer: answer.json()["results"])

    def stored(self) -> int:
        return len(self.other.get(f"/v1/events?partition={self.name}&client_id={OTHER}").json()["events"])


class EventSockets(Events):
    def prepare(self) -> None:
        self.peer = Peer(self.site.server.port)
        self.peer.connect(self.name, token_of(self.name))

    def close(self) -> None:
        super().close()
        self.peer.close()

    def write(self, number: int) -> Outcome:
        answer = self.peer.ask("submit_events", {"events": [self.item(number)]})
        if answer["type"] == "error":
            assert answer["payload"]["code"] == "quota_exceeded", answer
            return Outcome(None, answer["payload"])
        (result,) = answer["payload"]["results"]
        return Outcome(result["committed_id"])


class Jobs(HttpWriter):
    def write(self, number: int) -> Outcome:
        body = {"kind": self.name, "params": {"pad": PAD}, "idempotency_key": f"{self.name}-{number}"}
        return self.outcome(self.client.post("/v1/jobs", json=body), lambda answer: answer.json()["job_id"])

    def stored(self) -> int:
        return len(self.client.get(f"/v1/jobs?kind={self.name}").json()["jobs"])


class Ledger(HttpWriter):
    def prepare(self) -> None:
        self.org = self.other.post("/ledger/v1/orgs", json={"name": "o"}).json()["slug"]["slug"]

    def write(self, number: int) -> Outcome:
        put = {"setEntity": {"key": f"k{number}", "value": base64.b64encode(PAD.encode()).decode()}}
        body = {"clientId": self.name, "sequence": str(number), "operations": [put]}
        answer = self.client.post(f"/ledger/v1/orgs/{self.org}/writes", json=body)
        return self.outcome(answer, lambda answer: answer.json()["success"]["txId"])

    def stored(self) -> int:
        return int(self.other.get(f"/ledger/v1/orgs/{self.org}/tip").json()["height"])


class LedgerCalls(Ledger):
    """Over gRPC."""

    def request(self, number: int) -> bytes:
        put = pb.Operation(set_entity=pb.SetEntity(key=f"k{number}", value=PAD.encode()))
        return pb.WriteRequest(
            organization=pb.OrganizationSlug(slug=int(self.org)),
            client_id=pb.ClientId(id=self.name),
            sequence=number,
            operations=[put],
        ).SerializeToString()

    def write(self, number: int) -> Outcome:
        with self.site.channel() as channel:
            call: Any = channel.unary_unary("/ledger.v1.WriteService/Write")
            try:
                answer = call(
                    self.request(number), metadata=[("x-api-key", token_of(self.name))], timeout=60, wait_for_ready=True
                )
            except grpc.RpcError as error:
                return Outcome(None, exhausted(error))
        return Outcome(pb.WriteResponse.FromString(answer).success.tx_id.id)


class LedgerStreams(LedgerCalls):
    """Over one stream of gRPC for each write."""

    def write(self, number: int) -> Outcome:
        with self.site.channel() as channel:
            stream: Any = channel.stream_stream("/ledger.v1.WriteService/StreamWrites")
            key = [("x-api-key", token_of(self.name))]
            (told,) = stream(iter([self.request(number)]), metadata=key, timeout=60, wait_for_ready=True)
        verdict = pb.WriteVerdict.FromString(told)
        if verdict.WhichOneof("result") == "refusal":
            assert verdict.refusal.status == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], verdict
            return Outcome(None, verdict.refusal)
        return Outcome(verdict.success.tx_id.id)


class Deltas(HttpWriter):
    def delta(self, number: int) -> dict[str, Any]:
        return delta(
            "INSERT", columns(pad=PAD), row=f"r{number}", client=self.name, hlc=stamp(START_MS, number), table="t"
        )

    def write(self, number: int) -> Outcome:
        body = {"clientId": self.name, "deltas": [self.delta(number)]}
        answer = self.client.post(f"/sync/{self.name}/push", json=body)
        return self.outcome(answer, lambda answer: answer.json()["accepted"])

    def stored(self) -> int:
        page = self.other.get(f"/sync/{self.name}/pull?since=0&clientId=reader&limit=1000").json()
        return len(page["deltas"])


class DeltaSockets(Deltas):
    """Over a WebSocket for each write: a refusal closes it."""

    def write(self, number: int) -> Outcome:
        frame = PUSH + SyncPush(client_id=self.name, deltas=[row_delta(self.delta(number))]).SerializeToString()
        url = f"ws://{HOST}:{self.site.server.port}/sync/{self.name}/ws?token={token_of(self.name)}"
        with connect(f"{url}&clientId={self.name}", proxy=None, open_timeout=60, close_timeout=60) as line:
            line.send(frame)
            try:
                line.recv(60)
            except ConnectionClosed as closed:
                return Outcome(None, full(closed))
        return Outcome(1)


def exhausted(error: Any) -> Any:
    """An error of gRPC, which has to be that of a quota."""
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, error
    return error


def full(closed: ConnectionClosed) -> Any:
    """The end of a WebSocket of deltas, which has to be that of a quota."""
    assert closed.rcvd is not None
    assert (closed.rcvd.code, "QUOTA_EXCEEDED" in closed.rcvd.reason) == (1013, True), closed
    return closed.rcvd


WRITERS: dict[str, Any] = {
    "streams": Streams,
    "shaped": ShapedStreams,
    "events": Events,
    "events-ws": EventSockets,
    "jobs": Jobs,
    "ledger": Ledger,
    "ledger-grpc": LedgerCalls,
    "ledger-stream": LedgerStreams,
    "deltas": Deltas,
    "deltas-ws": DeltaSockets,
}


@contextmanager
def writing(site: Site, wire: str, name: str) -> Iterator[Any]:
    """A writer of a wire for a principal."""
    with ExitStack() as stack:
        writer = WRITERS[wire](site, name)
        stack.callback(writer.close)
        yield writer


__all__ = ["PAD", "WRITERS", "Outcome", "Writer", "writing"]

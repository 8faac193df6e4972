"""Many transactions at once, over each of the two ways: one HTTP request, or a gRPC stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from google.protobuf.json_format import MessageToDict, ParseDict

from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.ledger.http_wire import Route, place_path, problem_of
from tests.ledger.rig import Site
from tests.ledger.words import PATIENCE_SECONDS, Message, Place, text

WAYS = ("http", "stream")


class Verdict(NamedTuple):
    """The verdict on one transaction, whatever way it came."""

    code: str
    """OK, the short name of a domain error, or the name of a gRPC status."""
    height: int
    sequence: int
    tx: str
    is_replay: bool
    body: Message


class Many:
    """Sends transactions over one of the ways."""

    def __init__(self, site: Site, way: str, token: str = "") -> None:
        self.way = way
        self.ledger = site.ledger("http" if way == "http" else "grpc", token=token)
        self.wire: Any = self.ledger.wire

    def send(self, place: Place, *writes: Message) -> list[Verdict]:
        """The verdicts, in order."""
        return [verdict_of(one) for one in self.answers(place, writes)]

    def answers(self, place: Place, writes: Sequence[Message]) -> list[Message]:
        """The verdicts as they came, as proto3 JSON."""
        if self.way == "http":
            return self.http(place, writes)
        requests = [ParseDict({**place.fields, **one}, pb.WriteRequest()) for one in writes]
        return [as_json(one) for one in self.stream(requests)]

    def http(self, place: Place, writes: Sequence[Message]) -> list[Message]:
        """Over HTTP; `Refused` if the request as a whole is refused."""
        path = f"{place_path(place.fields)}/writes:bulk"
        response = self.wire.send(Route("POST", path, body={"transactions": list(writes)}))
        if response.status_code != 200:
            raise problem_of(response)
        found: list[Message] = response.json()["results"]
        assert len(found) == len(writes)
        return found

    def stream(self, requests: Iterable[pb.WriteRequest], timeout: float = PATIENCE_SECONDS) -> Any:
        """The verdicts of a stream as they come."""
        call = self.wire.channel().stream_stream("/ledger.v1.WriteService/StreamWrites", *codec(pb.WriteVerdict))
        return call(iter(requests), metadata=self.wire.metadata, timeout=timeout, wait_for_ready=True)


def codec(answer: Any) -> tuple[Any, Any]:
    """How a call of gRPC writes requests and reads answers."""
    return (lambda request: request.SerializeToString(), answer.FromString)


def as_json(message: Any) -> Message:
    """A message as proto3 JSON."""
    found: Message = MessageToDict(message)
    return found


def write(client: str, *operations: Message, sequence: int | None = None, key: bytes = b"") -> Message:
    """One transaction, as both wires take it."""
    given: Message = {"clientId": {"id": client}, "operations": list(operations)}
    if sequence is not None:
        given["sequence"] = str(sequence)
    if key:
        given["idempotencyKey"] = text(key)
    return given


def verdict_of(told: Message) -> Verdict:
    """A verdict from its JSON; HTTP statuses and gRPC statuses become one name."""
    is_replay = bool(told.get("replayed"))
    if "success" in told:
        body = told["success"]
        assert told.get("status", 200) == 200
        return Verdict(
            "OK", int(body["blockHeight"]), int(body["assignedSequence"]), body["txId"]["id"], is_replay, body
        )
    if "error" in told:
        body = told["error"]
        original = body.get("original")
        if original is not None:  # the cold form of gRPC
            told = {"success": original, "replayed": is_replay}
            return verdict_of(told)
        return Verdict(body["code"].removeprefix("WRITE_ERROR_CODE_"), 0, 0, "", is_replay, body)
    body = told.get("problem") or told["refusal"]
    code = body.get("code") or STATUS_NAMES[body["status"]]
    return Verdict(code, 0, 0, "", is_replay, body)


STATUS_NAMES = {3: "INVALID_ARGUMENT", 5: "NOT_FOUND", 7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED"}

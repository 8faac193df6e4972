"""Many requests of one client under way at once: in order over one connection, with a gap, behind one that fails."""

from __future__ import annotations

import http.client
import io
import json
import socket
from typing import Any

import pytest

from tests.harness.server import HOST
from tests.ledger import calls
from tests.ledger.http_wire import place_path
from tests.ledger.rig import Ledger, Told, request
from tests.ledger.words import PATIENCE_SECONDS, Answer, Message, Place, fresh, put

pytestmark = pytest.mark.each_wire

DEPTH = 64
"""As many as the server lets wait for one another."""


def send_together(ledger: Ledger, requests: list[Message]) -> list[Told]:
    """One after the other over one connection, with nobody waiting for an answer before the next is sent."""
    if ledger.via == "http":
        return _send_http(ledger, requests)
    channel = ledger.grpc.channel()
    # Connected before, because calls that wait for a connection need not begin in their order.
    ledger.grpc.begin(channel, "GetOrganization", {"slug": requests[0]["organization"]}).result(PATIENCE_SECONDS)
    begun = [ledger.grpc.begin(channel, "Write", asked) for asked in requests]
    answers = [calls.decoded("Write", call.result(PATIENCE_SECONDS)) for call in begun]
    return [Told(Answer(answer, headers={})) for answer in answers]


class _Shared:
    """A socket for `http.client`, which reads one answer after the other from the same stream."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream = stream

    def makefile(self, *_: Any) -> Any:
        return self._stream


class _Kept(io.BufferedReader):
    """Stays open when an answer has been read."""

    def close(self) -> None:
        """The socket is closed by whoever opened it."""


def _send_http(ledger: Ledger, requests: list[Message]) -> list[Told]:
    told = []
    with socket.create_connection((HOST, ledger.nodes[0].port), PATIENCE_SECONDS) as line:
        line.sendall(b"".join(_as_http(asked) for asked in requests))
        stream = _Kept(line.makefile("rb", buffering=0))
        for _ in requests:
            response = http.client.HTTPResponse(_Shared(stream))  # type: ignore[arg-type]  # it is all that is used
            response.begin()
            told.append(Told(Answer(json.loads(response.read()), headers={})))
    return told


def _as_http(asked: Message) -> bytes:
    body = json.dumps({name: value for name, value in asked.items() if name not in ("organization", "vault")}).encode()
    head = f"POST {place_path(asked)}/writes HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def test_an_in_order_pipeline_is_not_refused(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    requests = [request(place, client, [put("k", str(number))], sequence=number) for number in range(1, DEPTH + 1)]
    told = send_together(ledger, requests)
    assert [one.code for one in told] == ["OK"] * DEPTH
    assert [one.sequence for one in told] == list(range(1, DEPTH + 1))
    assert [one.height for one in told] == list(range(1, DEPTH + 1))
    assert ledger.value(place, "k") == str(DEPTH).encode()


def test_a_pipeline_goes_on_where_the_last_ended(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    for start in (1, 21, 41):
        numbers = range(start, start + 20)
        told = send_together(ledger, [request(place, client, [put("k")], sequence=number) for number in numbers])
        assert [one.sequence for one in told] == list(numbers)


def test_a_pipeline_may_be_repeated_whole(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    requests = [request(place, client, [put("k", str(number))], sequence=number) for number in range(1, 33)]
    first, again = send_together(ledger, requests), send_together(ledger, requests)
    assert [one.facts for one in again] == [one.facts for one in first]
    assert ledger.height(place) == 32


def test_a_gap_without_a_predecessor_is_refused_at_once(ledger: Ledger, place: Place) -> None:
    """Nobody sends the one between, so an answer is one that did not wait for it."""
    client = fresh("client")
    ledger.commit(place, client, put("k"), sequence=1)
    told = [ledger.write(place, client, put("k"), sequence=sequence) for sequence in (3, 4, 65, 66, 1_000)]
    assert [(one.code, one.last) for one in told] == [("SEQUENCE_GAP", 1)] * 5
    assert ledger.commit(place, client, put("k"), sequence=2).height == 2


def test_followers_of_one_that_fails_are_gaps(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    ledger.commit(place, client, put("k", b"0"), sequence=1)
    requests = [request(place, client, [put("not-there", must_exists=True)], sequence=2)]
    requests += [request(place, client, [put("k", str(number))], sequence=number) for number in range(3, 13)]
    told = send_together(ledger, requests)
    assert told[0].code == "KEY_NOT_FOUND"
    assert [(one.code, one.last) for one in told[1:]] == [("SEQUENCE_GAP", 1)] * 10
    assert (ledger.last(place, client), ledger.height(place), ledger.value(place, "k")) == (1, 1, b"0")


def test_one_that_is_malformed_leaves_a_gap(ledger: Ledger, place: Place) -> None:
    client = fresh("client")
    requests = [request(place, client, [put("k", str(number))], sequence=number) for number in (1, 2, 4, 5)]
    told = send_together(ledger, requests)
    assert [one.code for one in told] == ["OK", "OK", "SEQUENCE_GAP", "SEQUENCE_GAP"]
    assert [one.last for one in told[2:]] == [2, 2]


@pytest.mark.parametrize("depth", [8, 32])
def test_server_assigned_sequences_never_wait(ledger: Ledger, place: Place, depth: int) -> None:
    client = fresh("client")
    requests = [request(place, client, [put("k")], key=bytes([number + 1] * 16)) for number in range(depth)]
    told = send_together(ledger, requests)
    assert sorted(one.sequence or 0 for one in told) == list(range(1, depth + 1))


def test_two_streams_do_not_wait_for_one_another(ledger: Ledger, place: Place) -> None:
    ann, bob = fresh("ann"), fresh("bob")
    requests = [request(place, who, [put(who)], sequence=number) for number in range(1, 11) for who in (ann, bob)]
    told = send_together(ledger, requests)
    assert [one.sequence for one in told] == [number for number in range(1, 11) for _ in (ann, bob)]

"""Many transactions in one request or one stream: each has its own identity, its own block and its own verdict."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import grpc
import pytest
from google.protobuf.json_format import ParseDict

from semel.surfaces.ledger.limits import MAX_BULK
from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.ledger.http_wire import Route, place_path
from tests.ledger.many import WAYS, Many, verdict_of, write
from tests.ledger.rig import Site, SiteOf, serving
from tests.ledger.words import Message, Place, Refused, data, fresh, new_key, put, remove

COUNT = 150
"""More than one group of the queue has."""


@pytest.fixture(params=WAYS)
def many(request: pytest.FixtureRequest, site: Site) -> Many:
    """Every way."""
    return Many(site, request.param)


@pytest.fixture(params=WAYS)
def anyway(request: pytest.FixtureRequest, site_of: SiteOf) -> Many:
    """Every way, on SQLite."""
    return Many(site_of("sqlite"), request.param)


@pytest.fixture
def place(many: Many) -> Place:
    """A vault in an organization of the test's own."""
    return many.ledger.new_place()


def in_sequence(client: str, count: int) -> list[Message]:
    return [write(client, put(f"k{number % 40}", b"%d" % number), sequence=number) for number in range(1, count + 1)]


def test_each_transaction_is_a_block_of_its_own_in_the_order_of_the_request(many: Many, place: Place) -> None:
    client = fresh("client")
    told = many.send(place, *in_sequence(client, COUNT))
    assert [(one.code, one.height, one.sequence) for one in told] == [("OK", n, n) for n in range(1, COUNT + 1)]
    assert not any(one.is_replay for one in told)
    assert (many.ledger.last(place, client), many.ledger.height(place)) == (COUNT, COUNT)
    for height in (1, 33, 64, 65, COUNT):
        block = many.ledger.block(place, height)
        assert block["transactions"][0]["sequence"] == str(height)
        assert many.ledger.value(place, f"k{height % 40}", at=height) == b"%d" % height


def test_a_retry_of_the_whole_request_replays_each(many: Many, place: Place) -> None:
    client = fresh("client")
    writes = [*in_sequence(client, 40), *(write(client, put("z", b"z"), key=new_key()) for _ in range(10))]
    first = many.send(place, *writes)
    again = many.send(place, *writes)
    assert [one.code for one in first] == ["OK"] * 50
    assert [one[:4] for one in again] == [one[:4] for one in first]
    assert [one.is_replay for one in again] == [True] * 50
    assert many.ledger.height(place) == 50


def test_a_refused_transaction_leaves_the_others_as_they_are(many: Many, place: Place) -> None:
    client, other = fresh("client"), fresh("other")
    told = many.send(
        place,
        write(client, put("a", b"1"), sequence=1),
        write(client, put("a", b"2", not_exists=True), sequence=2),  # fails: its sequence stays free
        write(client, put("b", b"3"), sequence=2),
        write(client, put("c", b"4"), sequence=9),
        write(other, put("d", b"5"), sequence=1),
        write(other, sequence=2),
        write(other, put("x" * 2_000, b""), sequence=2),
        write(other, put("e", b"6"), sequence=2),
    )
    codes = [one.code for one in told]
    assert codes == ["OK", "KEY_EXISTS", "OK", "SEQUENCE_GAP", "OK", "INVALID_ARGUMENT", "INVALID_ARGUMENT", "OK"]
    assert [one.height for one in told if one.code == "OK"] == [1, 2, 3, 4]
    assert told[1].body["currentVersion"] == "1"
    assert told[3].body["lastCommittedSequence"] == "2"
    values = [many.ledger.value(place, name) for name in "abcde"]
    assert values == [b"1", b"3", None, b"5", b"6"]


def test_a_client_id_of_the_server_is_refused_among_others(many: Many, place: Place) -> None:
    client = fresh("client")
    told = many.send(
        place,
        write(client, put("a", b"1"), sequence=1),
        write("system:gc", put("a", b"2"), sequence=1),
        write("system:gc", put("a", b"2"), sequence=2),
        write(client, put("b", b"3"), sequence=2),
    )
    assert [one.code for one in told] == ["OK", "PERMISSION_DENIED", "PERMISSION_DENIED", "OK"]
    assert (many.ledger.height(place), many.ledger.last(place, "system:gc")) == (2, 0)


def test_followers_of_a_failed_transaction_get_a_gap(many: Many, place: Place) -> None:
    client = fresh("client")
    told = many.send(
        place,
        write(client, put("a", b"1", must_exists=True), sequence=1),
        write(client, put("b", b"2"), sequence=2),
        write(client, put("c", b"3"), sequence=3),
    )
    assert [one.code for one in told] == ["KEY_NOT_FOUND", "SEQUENCE_GAP", "SEQUENCE_GAP"]
    assert many.ledger.height(place) == 0


def test_the_same_identity_twice_in_one_request_is_executed_once(many: Many, place: Place) -> None:
    client, key = fresh("client"), new_key()
    told = many.send(
        place,
        write(client, put("a", b"1"), sequence=1),
        write(client, put("a", b"1"), sequence=1),
        write(client, put("a", b"2"), sequence=1),
        write(client, put("b", b"3"), key=key),
        write(client, put("b", b"3"), key=key),
        write(client, put("b", b"4"), key=key),
    )
    codes = [one.code for one in told]
    assert codes == ["OK", "OK", "IDEMPOTENCY_KEY_REUSED", "OK", "OK", "IDEMPOTENCY_KEY_REUSED"]
    assert [one.is_replay for one in told] == [False, True, False, False, True, False]
    assert (told[0][1:4], told[3][1:4]) == (told[1][1:4], told[4][1:4])
    assert many.ledger.height(place) == 2


def test_conditions_see_the_transactions_before(many: Many, place: Place) -> None:
    client = fresh("client")
    told = many.send(
        place,
        write(client, put("a", b"1", not_exists=True), sequence=1),
        write(client, put("a", b"2", version=1), sequence=2),
        write(client, remove("a"), sequence=3),
        write(client, put("a", b"4", not_exists=True), sequence=4),
        write(client, put("a", b"5", value_equals=b"4"), sequence=5),
    )
    assert [one.code for one in told] == ["OK"] * 5
    assert [many.ledger.value(place, "a", at=height) for height in range(1, 6)] == [b"1", b"2", None, b"4", b"5"]


def test_a_transaction_that_asks_for_a_proof_gets_one(anyway: Many) -> None:
    place, client = anyway.ledger.new_place(), fresh("client")
    writes = [write(client, put("a", b"1"), sequence=1), write(client, put("b", b"2"), sequence=2)]
    writes[1]["includeTxProof"] = True
    for _ in range(2):
        first, second = anyway.send(place, *writes)
        assert "blockHeader" not in first.body
        assert second.body["blockHeader"]["txMerkleRoot"] == second.body["txProof"]["leafHash"]
        assert second.body["transaction"]["sequence"] == "2"


@pytest.mark.parametrize("count", [0, MAX_BULK + 1])
def test_a_request_has_at_least_one_transaction_and_at_most_its_limit(site_of: SiteOf, count: int) -> None:
    many = Many(site_of("sqlite"), "http")
    place, client = many.ledger.new_place(), fresh("client")
    with pytest.raises(Refused, match="INVALID_ARGUMENT"):
        many.answers(place, in_sequence(client, count))
    assert many.ledger.height(place) == 0


def test_each_transaction_for_a_place_that_is_not_there_is_refused(anyway: Many) -> None:
    place = Place(anyway.ledger.new_place().org, 5)
    told = anyway.send(place, *in_sequence(fresh("client"), 2))
    assert [one.code for one in told] == ["NOT_FOUND"] * 2


def test_a_key_in_the_header_is_refused_for_many(site_of: SiteOf) -> None:
    many = Many(site_of("sqlite"), "http")
    place = many.ledger.new_place()
    body = {"transactions": in_sequence(fresh("client"), 1)}
    route = Route("POST", f"{place_path(place.fields)}/writes:bulk", body=body)
    assert many.wire.send(route, {"Idempotency-Key": "x"}).status_code == 400
    assert many.ledger.height(place) == 0


def test_verdicts_of_a_stream_come_while_it_is_open(site: Site) -> None:
    many = Many(site, "stream")
    place, client = many.ledger.new_place(), fresh("client")
    turn, number = threading.Semaphore(1), 3

    def requests() -> Iterator[pb.WriteRequest]:
        for sequence in range(1, number + 1):
            assert turn.acquire(timeout=30)
            one = write(client, put("a", b"%d" % sequence), sequence=sequence)
            yield ParseDict({**place.fields, **one}, pb.WriteRequest())

    told = []
    for verdict in many.stream(requests()):
        told.append(verdict.success.assigned_sequence)
        turn.release()
    assert told == [1, 2, 3]


def test_a_stream_takes_more_transactions_than_it_reads_ahead(site_of: SiteOf) -> None:
    many = Many(site_of("sqlite"), "stream")
    place, client = many.ledger.new_place(), fresh("client")
    told = many.send(place, *in_sequence(client, 1_000))
    assert [one.sequence for one in told] == list(range(1, 1_001))


def test_a_message_that_cannot_be_read_ends_a_stream_after_the_verdicts_before_it(site_of: SiteOf) -> None:
    many = Many(site_of("sqlite"), "stream")
    place, client = many.ledger.new_place(), fresh("client")
    first = ParseDict({**place.fields, **write(client, put("a"), sequence=1)}, pb.WriteRequest()).SerializeToString()
    call = many.wire.channel().stream_stream("/ledger.v1.WriteService/StreamWrites")
    answers = call(iter([first, b"\xff\xff", first]), timeout=30, wait_for_ready=True)
    assert pb.WriteVerdict.FromString(next(answers)).success.assigned_sequence == 1
    with pytest.raises(grpc.RpcError) as ended:
        next(answers)
    assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert many.ledger.height(place) == 1


def test_a_broken_stream_leaves_each_transaction_committed_or_not_there(site_of: SiteOf) -> None:
    many = Many(site_of("sqlite"), "stream")
    place, client = many.ledger.new_place(), fresh("client")
    writes = in_sequence(client, 400)
    requests = [ParseDict({**place.fields, **one}, pb.WriteRequest()) for one in writes]
    call = many.stream(requests)
    told = [next(call).success for _ in range(20)]
    call.cancel()
    again = many.send(place, *writes)
    assert [one.sequence for one in again] == list(range(1, 401))
    assert [one.height for one in again] == list(range(1, 401))
    assert [one.tx_id.id for one in told] == [_id(one.tx) for one in again[:20]]
    assert all(one.is_replay for one in again[:20])


def _id(tx: str) -> bytes:
    return data(tx)


def test_many_through_a_kill_are_executed_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The server is killed while it commits; the whole request is sent again until every verdict is there."""
    with serving(tmp_path_factory.mktemp("many"), "sqlite") as site:
        many = Many(site, "http")
        place, client = many.ledger.new_place(), fresh("client")
        writes = in_sequence(client, 600)
        told: list[list[Message]] = []

        def send() -> None:
            with suppress(Exception):  # the server is killed
                told.append(many.answers(place, writes))

        sending = threading.Thread(target=send)
        sending.start()
        site.crash()
        sending.join(60)
        again = [verdict_of(one) for one in Many(site, "http").answers(place, writes)]
        assert [(one.code, one.sequence, one.height) for one in again] == [("OK", n, n) for n in range(1, 601)]
        for one, before in zip(again, told[0] if told else [], strict=False):
            if "success" in before:
                assert one.tx == before["success"]["txId"]["id"]
        assert many.ledger.height(place) == 600

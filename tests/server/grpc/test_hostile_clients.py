"""What a client of gRPC may send, from outside: calls that are refused, floods, junk; nobody else notices any of it."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hyperframe.frame import DataFrame, PingFrame, PriorityFrame, SettingsFrame, WindowUpdateFrame

from semel.surfaces.ledger.proto import ledger_pb2 as pb
from tests.harness.server import RunningServer
from tests.harness.together import check_log
from tests.server.grpc.hostile import Header, HostileClient, framed

OK, INVALID_ARGUMENT, DEADLINE_EXCEEDED, UNIMPLEMENTED = 0, 3, 4, 12
STREAMS, WINDOW = 256, 1024 * 1024
STREAM_WRITES = "/ledger.v1.WriteService/StreamWrites"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    env = {"SEMEL_STORE": "memory:"}
    with RunningServer(tmp_path_factory.mktemp("hostile") / "data", env=env, grpc=True) as running:
        yield running
    check_log(running)


@pytest.fixture
def client(server: RunningServer) -> Iterator[HostileClient]:
    with HostileClient(server.grpc_port) as made:
        yield made


@pytest.fixture
def other(server: RunningServer) -> Iterator[HostileClient]:
    """Somebody who means well; it is served when the test is over, too."""
    with HostileClient(server.grpc_port) as made:
        assert made.status(made.call()) == OK
        yield made
        assert made.status(made.call()) == OK


def test_it_says_what_it_takes_and_takes_as_much(client: HostileClient) -> None:
    assert client.status(client.call()) == OK
    told = client.h2.remote_settings
    assert (told.max_concurrent_streams, told.max_header_list_size) == (STREAMS, 64 * 1024)
    assert told.initial_window_size == WINDOW
    streams = [client.call() for _ in range(STREAMS)]
    assert {client.status(stream) for stream in streams} == {OK}


def test_one_stream_too_many_ends_the_connection(client: HostileClient, other: HostileClient) -> None:
    for _ in range(STREAMS + 1):  # the settings of the server are not read yet
        client.open(path=STREAM_WRITES)
    client.until_closed()
    assert client.goodbye is not None


PACKED = ("grpc-encoding", "gzip")
WHOLE = gzip.compress(b"")
HEADS: dict[str, tuple[tuple[Header, ...], int]] = {
    **{f"timeout {value}": ((("grpc-timeout", value),), OK) for value in ("1H", "2M", "99999999H", "60000m")},
    **{
        f"timeout {value}": ((("grpc-timeout", value),), DEADLINE_EXCEEDED)
        for value in ("99m", "0S", "99999u", "99999999n", "0n")
    },
    **{
        f"timeout {value!r}": ((("grpc-timeout", value),), INVALID_ARGUMENT)
        for value in ("", "1", "S", "1s", "123456789S", "-1S", "1.5S", "1SS")
    },
    **{f"encoding {value}": ((("grpc-encoding", value),), OK) for value in ("identity", "gzip")},
    **{f"encoding {value}": ((("grpc-encoding", value),), UNIMPLEMENTED) for value in ("deflate", "snappy", "GZIP")},
    **{
        f"type {value}": ((("content-type", f"application/{value}"),), OK)
        for value in ("grpc", "grpc+proto", "grpc;charset=utf-8")
    },
    **{f"type {value!r}": ((("content-type", value),), -415) for value in ("application/grpc+json", "text/html", "")},
    "GET": (((":method", "GET"),), -405),
    "no such method": (((":path", "/ledger.v1.ReadService/Nothing"),), UNIMPLEMENTED),
    "a path that is no text": (((":path", b"/\xff\xfe"),), UNIMPLEMENTED),
    **{
        f"trace {value[:9]}": ((("traceparent", value),), OK)
        for value in (f"00-{'0' * 32}-b7ad6b7169203331-01", f"cc-{'a' * 32}-b7ad6b7169203331-01-more", "x")
    },
}
MESSAGES: dict[str, tuple[tuple[Header, ...], bytes, int]] = {
    "nothing": ((), b"", INVALID_ARGUMENT),
    "half a head": ((), b"\0\0", INVALID_ARGUMENT),
    "half a message": ((), framed(b"abc")[:-1], INVALID_ARGUMENT),
    "two messages": ((), framed(b"") * 2, INVALID_ARGUMENT),
    "a message and a byte": ((), framed(b"") + b"\0", INVALID_ARGUMENT),
    "noise": ((), b"\xff" * 10_000, INVALID_ARGUMENT),
    "a size beyond all": ((), b"\0\xff\xff\xff\xff", INVALID_ARGUMENT),
    "a size too large behind a message": ((), framed(b"") + b"\0\xff\xff\xff\xff", INVALID_ARGUMENT),
    **{f"flag {flag}": ((), framed(b"", flag), INVALID_ARGUMENT) for flag in (2, 0x80, 0xFF)},
    "packed": ((PACKED,), framed(WHOLE, 1), OK),
    "not packed": ((PACKED,), framed(b""), OK),
    "packed and cut": ((PACKED,), framed(WHOLE[:-1], 1), INVALID_ARGUMENT),
    "packed and more": ((PACKED,), framed(WHOLE + b"x", 1), INVALID_ARGUMENT),
    "packed twice": ((PACKED,), framed(WHOLE + WHOLE, 1), INVALID_ARGUMENT),
    "packed nothing": ((PACKED,), framed(b"", 1), INVALID_ARGUMENT),
    "packed otherwise": ((PACKED,), framed(b"abc", 1), INVALID_ARGUMENT),
    "packed without a word": ((), framed(WHOLE, 1), INVALID_ARGUMENT),
    "a bomb": ((PACKED,), framed(gzip.compress(bytes(15_000_000)), 1), INVALID_ARGUMENT),
}


def test_calls_that_are_wrong_end_alone_and_say_why(client: HostileClient) -> None:
    cases = {name: (more, framed(b""), status) for name, (more, status) in HEADS.items()} | MESSAGES
    found = {}
    for name, (more, data, _) in cases.items():
        found[name] = client.status(client.call(*more, data=data))
        assert client.status(client.call()) == OK, f"the connection goes on behind {name}"
    assert found == {name: status for name, (_, _, status) in cases.items()}


def test_what_was_sent_to_refused_calls_is_no_loss_to_the_connection(client: HostileClient) -> None:
    """More than its window, in calls that are refused at their first bytes."""
    for _ in range(200):
        stream = client.open()
        for _ in range(4):
            client.h2.send_data(stream, b"\xff" * 16_000)
        assert client.status(stream) == INVALID_ARGUMENT
    assert client.status(client.call()) == OK


def test_calls_that_are_taken_back_leave_nothing_behind(client: HostileClient) -> None:
    for data in (b"", framed(b""), b"\xff" * 10, framed(b"abc")[:-1]):
        stream = client.open()
        if data:
            client.h2.send_data(stream, data)
        client.h2.reset_stream(stream, ErrorCodes.CANCEL)
        assert client.status(client.call()) == OK


FLOODS = {
    "settings": SettingsFrame(0, {SettingCodes.INITIAL_WINDOW_SIZE: 70_000}).serialize(),
    "settings-acknowledged": SettingsFrame(0, flags=["ACK"]).serialize(),
    "ping": PingFrame(0, b"12345678").serialize(),
    "window-of-the-connection": WindowUpdateFrame(0, 1).serialize(),
    "window-of-a-stream": WindowUpdateFrame(1, 1).serialize(),
    "priority": PriorityFrame(1, depends_on=0, stream_weight=1).serialize(),
    "unknown": b"\0\0\0\x63\0\0\0\0\0",
    "empty-data": DataFrame(1, b"").serialize(),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_frames_that_carry_nothing_come_to_an_end(client: HostileClient, other: HostileClient, flood: str) -> None:
    client.open(path=STREAM_WRITES)
    client.send(FLOODS[flood] * 20_000)
    assert other.status(other.call()) == OK, "others have their turns meanwhile"
    client.until_closed()
    assert client.goodbye in (ErrorCodes.ENHANCE_YOUR_CALM, None)  # None: the reset overtook it


def test_who_only_takes_calls_back_is_sent_away(client: HostileClient, other: HostileClient) -> None:
    for _ in range(100):
        for _ in range(100):
            client.h2.reset_stream(client.open(path=STREAM_WRITES), ErrorCodes.CANCEL)
        client.send()
    client.until_closed()
    assert client.goodbye in (ErrorCodes.ENHANCE_YOUR_CALM, None)


def test_a_large_answer_waits_for_the_client_and_so_do_those_behind_it(
    client: HostileClient, other: HostileClient
) -> None:
    made = client.call(data=framed(b"\x0a\x01o"), path="/ledger.v1.AdminService/CreateOrganization")
    assert client.status(made) == OK
    org = pb.CreateOrganizationResponse.FromString(client.content(made)[5:]).slug
    put = pb.Operation(set_entity=pb.SetEntity(key="k", value=bytes(200_000)))
    write = pb.WriteRequest(organization=org, client_id=pb.ClientId(id="c"), sequence=1, operations=[put])
    stream, sent = client.open(path="/ledger.v1.WriteService/Write"), framed(write.SerializeToString())
    for start in range(0, len(sent), 16_000):
        client.h2.send_data(stream, sent[start : start + 16_000], end_stream=start + 16_000 >= len(sent))
    assert client.status(stream) == OK
    read = framed(pb.ReadRequest(organization=org, key="k").SerializeToString())
    large = client.call(data=read, path="/ledger.v1.ReadService/Read")
    client.send()
    while len(client.content(large)) + len(client.content(made)) + len(client.content(stream)) < 65_535:
        assert client.hear()
    small = client.call()
    assert other.status(other.call()) == OK
    for stream_id in (0, large):
        client.h2.increment_flow_control_window(300_000, stream_id or None)
    assert [client.status(one) for one in (large, small)] == [OK, OK]
    assert len(client.content(large)) > 200_000


JUNK = {
    "http1": b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
    "bad-head": PREFACE + b"\x00\x00\x05\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff\xff",
    "data-before-head": PREFACE + SETTINGS + b"\x00\x00\x01\x00\x01\x00\x00\x00\x01x",
    "reset-of-nothing": PREFACE + SETTINGS + b"\x00\x00\x04\x03\x00\x00\x00\x00\x05\x00\x00\x00\x00",
    "no-increment": PREFACE + SETTINGS + b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    "huge-frame": PREFACE + SETTINGS + b"\xff\xff\xff",
    "many-pieces": PREFACE + SETTINGS + b"\0\0\0\x01\0\0\0\0\x01" + 6 * b"\0\0\0\x09\0\0\0\0\x01",
}


@pytest.mark.parametrize("junk", JUNK)
def test_who_breaks_the_protocol_is_sent_away(client: HostileClient, other: HostileClient, junk: str) -> None:
    client.h2.clear_outbound_data_buffer()
    client.send(JUNK[junk])
    client.until_closed()
    if not JUNK[junk].startswith(PREFACE):
        assert client.goodbye is None, "what speaks another protocol would not understand a goodbye"


def conversation(client: HostileClient) -> bytes:
    """What a client says that calls, sends, and takes back."""
    for size in (0, 10, 12_000):
        stream = client.call(data=framed(b"x" * size))
        if size == 10:
            client.h2.reset_stream(stream)
    client.h2.ping(b"12345678")
    return client.h2.data_to_send()


def mutated(said: bytes, chance: random.Random) -> bytes:
    """The same with a few bytes changed, left out, doubled or cut; mostly in the part that has meaning."""
    data = bytearray(said)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(24, min(len(data), chance.choice((300, 50_000))))
        match chance.randrange(4):
            case 0:
                data[place] = chance.randrange(256)
            case 1:
                del data[place : place + chance.randint(1, 9)]
            case 2:
                data[place:place] = data[place : place + chance.randint(1, 40)]
            case _:
                data[place:place] = chance.randbytes(chance.randint(1, 20))
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_is_sent_harms_others(
    server: RunningServer, client: HostileClient, other: HostileClient, seed: int
) -> None:
    said, chance = conversation(client), random.Random(seed)
    for _ in range(100):
        with HostileClient(server.grpc_port) as broken:
            broken.h2.clear_outbound_data_buffer()
            data, step = mutated(said, chance), chance.choice((1_000_000, 1_000, 61))
            for start in range(0, len(data), step):
                broken.send(data[start : start + step])
    assert other.status(other.call()) == OK

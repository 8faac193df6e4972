"""A short run of wrong frames in every test run; `make nightly NAME=fuzz` sends a hundred thousand."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.events.fuzz import bad_frames, breakages, oracle
from tests.events.fuzz.documents import content_path, envelope, paths, payloads, place_name, put
from tests.events.fuzz.mutations import Mutator
from tests.events.fuzz.run import PATIENCE_SECONDS, Fuzz
from tests.events.fuzz.verdict import token
from tests.events.raw_frames import Ended, RawSocket, frame, unframed
from tests.events.shapes import Dialect
from tests.harness.server import RunningServer

FRAMES = 3_000
DIALECTS = (Dialect.SEED, Dialect.PROJECT, Dialect.FLAT)


def test_wrong_frames_are_answered_as_the_contract_says(tmp_path: Path) -> None:
    verdict = Fuzz(tmp_path, FRAMES, seed=4).run()
    assert not verdict.wrong, "\n".join([str(verdict), *verdict.faults])
    assert verdict.frames >= FRAMES
    assert verdict.healthy > 0


def told_by(server: RunningServer, *writes: bytes) -> list[str | int]:
    """What a server says to bytes that are written one after the other, each when the one before was answered."""
    web = RawSocket(server.port, PATIENCE_SECONDS)
    assert web.upgrade() == 101
    told: list[str | int] = []
    for data in writes:
        web.send(data)
        while web.end is None and (not told or told[-1] not in ("connected", "heartbeat_ack")):
            got = web.receive()
            told.append(got.code if isinstance(got, Ended) else token(json.loads(got.payload)))
        told.append("")
    web.close()
    return [one for one in told if one]


def submitting(text: str) -> bytes:
    payload = payloads(Dialect.SEED, "client")["submit_events"]
    message = envelope(Dialect.SEED, "submit_events", payload)
    return frame(json.dumps(put(message, (*content_path(Dialect.SEED), "text"), text)).encode())


def test_what_is_too_large_is_answered_after_what_came_before_it(tmp_path: Path) -> None:
    """A refusal in the place of an earlier answer would tell the client that a committed event was refused."""
    mutator = Mutator(random.Random(3), Dialect.SEED, "client")
    large = breakages.too_large(random.Random(3), {}, Dialect.SEED)
    with RunningServer(tmp_path / "data") as server:
        told = told_by(server, mutator.hello(), submitting("small") + large)
    assert told == ["connected", "committed", "bad_request", 1009]


def test_a_client_need_not_wait_for_the_handshake(tmp_path: Path) -> None:
    """Messages are handled in the order in which they arrive, so what follows `connect` at once is a client's own."""
    mutator = Mutator(random.Random(3), Dialect.SEED, "client")
    with RunningServer(tmp_path / "data") as server:
        told = told_by(server, mutator.hello() + submitting("x" * 100_000), mutator.mark("mark"))
    assert told == ["connected", "committed", "heartbeat_ack"]


def test_every_row_has_a_maker_and_every_maker_a_row() -> None:
    assert set(breakages.UNREADABLE) == set(oracle.UNREADABLE)
    assert set(breakages.ITEMS) == set(oracle.ITEMS)
    assert set(breakages.SEED_KINDS) == set(oracle.SEED_KINDS)
    assert set(bad_frames.HANDSHAKES) == set(oracle.UPGRADES)
    chance = random.Random(1)
    mutator = bad_frames.FrameMutator(chance, "client")
    made = {mutator.case().kind for _ in range(2_000)}
    assert made == set(oracle.FRAMES)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_place_of_every_message_has_a_row(dialect: Dialect) -> None:
    for kind, payload in payloads(dialect, "client").items():
        if kind not in oracle.PLACES[dialect]:
            continue
        for path in paths(envelope(dialect, kind, payload)):
            for value in (None, *oracle.VALUES):
                assert oracle.place_row(dialect, kind, place_name(path), value), (kind, path, value)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("connects", [False, True])
def test_a_seed_makes_the_same_cases_again(dialect: Dialect, connects: bool) -> None:
    if connects and dialect is Dialect.FLAT:
        return  # before the handshake it is the same as 2.x

    def made() -> list[str]:
        mutator = Mutator(random.Random(5), dialect, "client", connects=connects)
        return [mutator.case().kind for _ in range(300)]

    first = made()
    assert first == made()
    assert len(set(first)) > 30


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65_535, 65_536, 70_000])
def test_a_frame_says_its_length_and_hides_itsunframed(length: int) -> None:
    text = random.Random(length).randbytes(length)
    made = frame(text, mask=b"\x0a\x0b\x0c\x0d")
    start = 2 if length < 126 else 4 if length < 65_536 else 10
    assert made[0] == 0x81
    assert int.from_bytes(made[2:start]) == length or made[1] == 0x80 | length
    assert bytes(byte ^ (10, 11, 12, 13)[place % 4] for place, byte in enumerate(made[start + 4 :])) == text
    assert unframed(made) == text


def test_breakages_are_what_they_say() -> None:
    chance = random.Random(2)
    message = envelope(Dialect.SEED, "submit_events", payloads(Dialect.SEED, "client")["submit_events"])
    doubled = unframed(breakages.duplicate_name(chance, message, Dialect.SEED))
    found: list[int] = []

    def read(members: list[tuple[str, object]]) -> dict[str, object]:
        found.append(len(members) - len(dict(members)))
        return dict(members)

    json.loads(doubled, object_pairs_hook=read)
    assert sum(found) == 1
    assert json.loads(unframed(breakages.ITEMS["deepest event"](chance, message, Dialect.SEED)))
    with pytest.raises(ValueError, match=r"Expecting|Unterminated|Extra data"):
        json.loads(unframed(breakages.cut_short(chance, message, Dialect.SEED)))

"""Many at once: one delta over many connections, a full engine, too fast a client."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.deltas.rig import Line, signed
from tests.deltas.vectors import JWT_SECRET
from tests.deltas.wire import CLIENT, Deltas, Message, columns, delta, hlcs, path, serving
from tests.harness.together import at_once

CONNECTIONS = 8
PUSHES = 100


def raced(deltas: Deltas, gateway: str, made: list[Message], client: str = CLIENT) -> list[tuple[int, Message]]:
    """Push the same deltas a hundred times over eight connections; every answer."""
    body = json.dumps({"clientId": client, "deltas": made}).encode()

    def push(number: int) -> list[tuple[int, Message]]:
        node = deltas.nodes[number % len(deltas.nodes)]
        share = PUSHES // CONNECTIONS + (number < PUSHES % CONNECTIONS)
        with Line(node.port) as line:
            return [line.push(gateway, body) for _ in range(share)]

    answers = [one for answers in at_once([partial(push, number) for number in range(CONNECTIONS)]) for one in answers]
    assert len(answers) == PUSHES
    return answers


@pytest.mark.each_store
def test_one_delta_over_many_connections(deltas: Deltas, gateway: str) -> None:
    made = delta("INSERT", columns(title="x"))
    answers = raced(deltas, gateway, [made])
    assert {status for status, _ in answers} == {200}
    assert sorted(told["duplicates"] for _, told in answers) == [0] + [1] * (PUSHES - 1)
    assert [told["deltas"] for _, told in answers if told["deltas"]] == [[made]]
    assert len({told["serverHlc"] for _, told in answers}) == 1, "a push of nothing new needs no commit"
    assert deltas.log(gateway) == [made]
    gauges = deltas.gauges(gateway)
    assert (gauges["logSize"], gauges["deltaCount"]) == (1, 1)


@pytest.mark.each_store
def test_r5_one_batch_over_many_connections(deltas: Deltas, gateway: str) -> None:
    """Two of its ten deltas have no effect, so there are eight entries."""
    stamps = hlcs()
    made = [delta("INSERT", columns(n=number), row=str(number), hlc=next(stamps)) for number in range(8)]
    early = int(made[0]["hlc"]) - 1
    losers = [delta("UPDATE", columns(n="lost"), row=str(number), hlc=early) for number in range(2)]
    answers = raced(deltas, gateway, made + losers)
    assert {status for status, _ in answers} == {200}
    assert sorted(told["duplicates"] for _, told in answers) == [0] + [10] * (PUSHES - 1)
    assert deltas.log(gateway) == made
    assert deltas.gauges(gateway)["deltaCount"] == 10


@pytest.mark.each_store
def test_overlapping_batches_of_many_clients(deltas: Deltas, gateway: str) -> None:
    """Each takes a different part of the same deltas, and all together are told of each of them once as new."""
    stamps = hlcs()
    made = [delta("INSERT", columns(n=number), row=str(number), hlc=next(stamps)) for number in range(40)]
    parts = [made[start : start + 20] for start in range(0, 24, 3)]
    answers = at_once([partial(deltas.push, gateway, part) for part in parts])
    new = [one for answer in answers for one in answer.ids]
    pushed = {one["deltaId"] for part in parts for one in part}
    assert sorted(new) == sorted(pushed)
    assert sum(answer["accepted"] - answer["duplicates"] for answer in answers) == len(pushed)
    assert sorted(one["deltaId"] for one in deltas.log(gateway)) == sorted(pushed)


def test_a_full_engine_refuses_for_now_and_stores_nothing(tmp_path: Path) -> None:
    """Commits take a while here and two writes may wait: of many at once most are told to come back, and may."""
    with serving(tmp_path / "data", QUEUE_WRITES=2, BATCH_WRITES=1, COMMIT_DELAY_MS=250) as slow:
        made = [delta("INSERT", columns(n=number), row=str(number)) for number in range(16)]
        answers = at_once([partial(slow.push, "gw", [one], expect=None) for one in made])
        told = {one["deltaId"]: answer for one, answer in zip(made, answers, strict=True)}
        refused = [one for one in made if told[one["deltaId"]].http != 200]
        assert {answer.told for answer in answers} == {(200, ""), (503, "BACKPRESSURE_ERROR")}
        for one in refused:
            assert int(told[one["deltaId"]].headers["Retry-After"]) >= 1
        assert {one["deltaId"] for one in slow.log("gw")} == {one["deltaId"] for one in made if one not in refused}
        assert slow.gauges("gw")["deltaCount"] == len(made) - len(refused)
        assert slow.push("gw", refused[:1])["duplicates"] == 0


def test_a_client_that_is_too_fast(tmp_path: Path) -> None:
    """One push a second is slower than anyone can push; others have a second of their own."""
    claims = {"gw": "gw", "exp": 4_102_444_800}
    fast, other, admin = (
        {"Authorization": f"Bearer {signed(claims | {'sub': name, 'role': role}, JWT_SECRET)}"}
        for name, role in ((CLIENT, "client"), ("other", "client"), ("admin", "admin"))
    )
    with serving(tmp_path / "data", "memory", DELTAS_PUSHES_PER_SEC=1, DELTAS_JWT_SECRET=JWT_SECRET) as strict:
        for taken in range(200):
            made = delta("INSERT", columns(n=taken), row=str(taken))
            body = json.dumps({"clientId": CLIENT, "deltas": [made]}).encode()
            answer = strict.push_raw("gw", body, expect=None, headers=fast)
            if answer.http != 200:
                break
        else:
            raise AssertionError("nobody stopped it")
        assert answer.told == (429, "RATE_LIMITED")
        assert int(answer.headers["Retry-After"]) >= 1
        assert strict.call("GET", path("gw", "metrics"), headers=admin)["deltaCount"] == taken
        assert strict.push_raw("gw", b'{"clientId": "other", "deltas": []}', headers=other)["accepted"] == 0

"""After kill -9: what was acknowledged is there once, what is known stays known, and the clock goes on."""

from __future__ import annotations

import http.client
import json
import threading
from collections import ChainMap
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.deltas.rig import Line, digest_of, wrong_clock
from tests.deltas.vectors import now_ms, stamp
from tests.deltas.wire import CLIENT, LASTING, PATIENCE_SECONDS, Deltas, columns, delta, fresh, hlcs, serving
from tests.harness.together import at_once


@pytest.fixture(scope="module", params=LASTING)
def mortal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deltas]:
    """Servers that the tests kill."""
    with serving(tmp_path_factory.mktemp("restarts") / "data", request.param) as deltas:
        yield deltas


def test_everything_is_back(mortal: Deltas, gateway: str) -> None:
    stamps = hlcs()
    made = [delta("INSERT", columns(n=number), row=str(number), hlc=next(stamps)) for number in range(20)]
    loser = delta("UPDATE", columns(n="lost"), row="0", hlc=int(made[0]["hlc"]) - 1, client="other")
    mortal.schema(gateway, "todos", n="number")
    told = [mortal.push(gateway, [one]).hlc for one in made]
    told.append(mortal.push(gateway, [loser], client="other").hlc)
    mortal.push(gateway, [delta("INSERT", columns(n=0), row="bad", hlc=2**64 - 1)], expect=409)
    told.append(mortal.pull(gateway).hlc)
    before = digest_of(mortal, gateway)

    mortal.crash()

    assert digest_of(mortal, gateway) == before
    assert mortal.log(gateway) == made
    again = mortal.push(gateway, made)
    assert (again["accepted"], again["duplicates"], again["deltas"]) == (20, 20, [])
    assert again.hlc >= max(told)
    again = mortal.push(gateway, [loser], client="other")
    assert (again["duplicates"], again["deltas"]) == (1, [])
    assert mortal.push(gateway, [delta("UPDATE", columns(colour=1))], expect=422).code == "SCHEMA_ERROR"
    assert mortal.schema(gateway, "todos", m="number", expect=422).code == "SCHEMA_ERROR"
    assert digest_of(mortal, gateway) == before


def test_the_clock_goes_on_over_every_restart(mortal: Deltas, gateway: str) -> None:
    """Also when what it told last was ahead of the time, or came from a pull, or from a push that brought nothing."""
    told: list[int] = []
    for ahead_ms in (4_500, 0):
        ahead = delta("INSERT", columns(n=ahead_ms), client=fresh("c"), hlc=stamp(now_ms() + ahead_ms))
        told.append(mortal.push(gateway, [ahead]).hlc)
        told.append(mortal.push(gateway, [ahead]).hlc)
        told.append(mortal.push(gateway, []).hlc)
        told.append(mortal.pull(gateway).hlc)
        mortal.crash()
        first = mortal.push(gateway, [delta("INSERT", row=fresh("first"), hlc=3)])
        assert first.hlc > max(told)
        told.append(first.hlc)
        late = delta("INSERT", row=fresh("late"), hlc=7)
        mortal.push(gateway, [late])
        for cursor in told:
            # The author of others' entries has no aliases here: every cursor means itself.
            assert late["deltaId"] in mortal.pull(gateway, cursor, client=fresh("reader")).ids


def test_a_shutdown_under_load(mortal: Deltas, gateway: str) -> None:
    """Whoever is told 200 is on disk, whoever is told 503 is not, and whoever is told nothing is so or so."""
    begun = threading.Semaphore(0)

    def push(number: int) -> dict[str, int]:
        told: dict[str, int] = {}
        with Line(mortal.nodes[number % len(mortal.nodes)].port) as line:
            for row in range(100_000):
                made = delta("INSERT", columns(n=row), row=f"{number}-{row}")
                body = json.dumps({"clientId": CLIENT, "deltas": [made]}).encode()
                try:
                    status, answer = line.push(gateway, body)
                except (OSError, http.client.HTTPException):
                    return told
                assert status == 200 or answer["code"] == "BACKPRESSURE_ERROR", answer
                told[made["deltaId"]] = status
                begun.release()
        raise AssertionError("it never ended")

    def stop() -> dict[str, int]:
        for _ in range(50):
            assert begun.acquire(timeout=PATIENCE_SECONDS)
        for node in mortal.nodes:
            node.stop()
        return {}

    calls: list[Callable[[], dict[str, int]]] = [stop, *(partial(push, number) for number in range(6))]
    told = dict(ChainMap(*at_once(calls)))
    mortal.server.start()
    mortal.redial()
    kept = {entry["deltaId"] for entry in mortal.log(gateway)}
    assert {one for one, status in told.items() if status == 200} <= kept
    assert not {one for one, status in told.items() if status != 200} & kept


@pytest.mark.parametrize("store", LASTING)
def test_a_clock_that_was_set_back(tmp_path_factory: pytest.TempPathFactory, store: str) -> None:
    """Servers that went an hour ahead, and after a crash go right: no position falls behind a cursor."""
    folder = tmp_path_factory.mktemp("back")
    with serving(folder / "data", store, env=wrong_clock(folder, 3_600_000), nodes=1) as deltas:
        deltas.push("gw", [delta("INSERT", columns(n=1), row="a")])
        told = [deltas.push("gw", []).hlc, deltas.pull("gw").hlc, deltas.push("gw", [delta(hlc=1)]).hlc]
        deltas.server.kill()
        wrong_clock(folder, 0)
        deltas.server.start()
        deltas.redial()
        told.append(deltas.pull("gw").hlc)
        late = delta("INSERT", columns(n=2), row="b", hlc=stamp(now_ms()))
        first = deltas.push("gw", [late])
        assert first.hlc > max(told)
        for cursor in told:
            assert deltas.pull("gw", cursor, client=fresh("reader")).ids[-1:] == [late["deltaId"]]
        assert deltas.push("gw", [late])["duplicates"] == 1

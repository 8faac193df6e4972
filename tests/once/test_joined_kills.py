"""A joined request is killed (-9) at every statement, and raced for by 64 callers: one charge for each key."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.guardian import guard
from tests.harness.together import PATIENCE_SECONDS, at_once
from tests.once import joined_world as worlds
from tests.once.joined_world import Reply, World
from tests.once.killing import killed_at

RACERS = 64
MAX_PLACES = 400
KINDS: dict[str, Callable[[Path, str], World]] = {
    "asgi-sqlite": worlds.SessionAsgi,
    "asgi-async-sqlite": worlds.AsyncSessionSqlite,
    "asgi-postgresql": worlds.AsyncPsycopgAsgi,
    "asgi-async-session-postgresql": worlds.AsyncSessionPostgres,
    "wsgi-postgresql": worlds.PsycopgWsgi,
}


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A door and a driver."""
    guard()
    made = KINDS[request.param](tmp_path, "")
    yield made
    made.close()


def asked(world: World, script: str) -> Reply:
    """The answer to a request that is sent again while another one with its key runs."""
    deadline = time.monotonic() + 2 * PATIENCE_SECONDS
    while True:
        found = world.attempt(script, "retry")
        if found.status != 409 or time.monotonic() > deadline:
            return found


def killed(world: World, number: int, script: str, racers: int) -> bool:
    """Send requests in a new process that is killed at the nth place that any of them reaches. Whether it was."""

    def attempt() -> Reply:
        return world.attempt(script, "retry")

    def work() -> list[object]:
        found = at_once([attempt] * racers) if racers > 1 else [attempt()]
        return [tuple(vars(one).values()) for one in found]

    return killed_at(number, work, world.restart)


@pytest.mark.parametrize("script", ["BCA", "BAC"])
def test_a_kill_at_every_statement_leaves_one_charge(world: World, script: str) -> None:
    places = 0
    while True:
        places += 1
        world.begin()
        was_killed = killed(world, places, script, 1)
        world.restart()
        answers = [asked(world, script) for _ in range(2)]
        assert len(world.rows()) == 1, places
        assert len(set(answers)) == 1, places
        assert answers[0].status == 200, places
        if not was_killed:
            break
    assert 5 < places < MAX_PLACES


def test_64_racers_for_one_key_have_one_charge(world: World) -> None:
    world.begin()
    answers = at_once([lambda: asked(world, "BCA")] * RACERS)
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert len(world.rows()) == 1


@pytest.mark.parametrize("place", [3, 20, 60, 200])
def test_64_racers_whose_process_is_killed_have_one_charge(world: World, place: int) -> None:
    world.begin()
    killed(world, place, "BAC", RACERS)
    world.restart()
    answers = at_once([lambda: asked(world, "BAC")] * RACERS)
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers}) == 1
    assert len(world.rows()) == 1

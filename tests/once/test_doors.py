"""What becomes of a key, and what a replay carries, on every door: ASGI, WSGI, Django and the proxy."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.once.doors import DOORS, Door

Made = Callable[..., Door]


@pytest.fixture(params=DOORS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    """A door of each kind, with options."""
    opened: list[Door] = []

    def make(**options: Any) -> Door:
        opened.append(DOORS[request.param](tmp_path, **options))
        return opened[-1]

    make.__name__ = request.param
    yield make
    for door in opened:
        door.close()


@pytest.fixture
def door(made: Made) -> Door:
    """A door of each kind."""
    return made()


class Fate(NamedTuple):
    """What becomes of a key: how often the handler ran in three calls, and what the last two were told."""

    runs: int
    told: object
    """None for what the handler answers."""


STORED, RUN, OPEN = Fate(1, None), Fate(3, None), Fate(1, "outcome_unknown")
RETRY = [("Retry-After", "1")]
ANSWERS: dict[tuple[int, bool], str] = {
    **{(status, is_later): "done" for status in (200, 201, 302, 400, 404, 410, 422) for is_later in (False, True)},
    **{
        (status, is_later): "nothing"
        for status in (401, 403, 408, 409, 421, 425, 429)
        for is_later in (False, True)
    },
    **{(status, is_later): "open" for status in (500, 502, 504) for is_later in (False, True)},
    (503, False): "open",
    (503, True): "nothing",
}  # fmt: skip
"""What an answer says, by its status and whether it has Retry-After."""
ERRORS = (TimeoutError("bank"), ValueError("amount"))
BOTH = [("settle", "refuse"), ("settle", "retry"), ("release", "refuse"), ("remember", "refuse")]
SETTINGS = [
    *itertools.product(("asgi", "wsgi"), BOTH),
    *itertools.product(("proxy",), BOTH[:2]),
    ("django", BOTH[0]),
]
"""A proxy has no `on_error`, and a view of Django neither of both."""


def fate_of(door: str, said: str, on_error: str, on_crash: str) -> Fate:
    """The rule, as the page has it."""
    if said == "nothing":
        return RUN
    if said == "done":
        return STORED
    if door == "django":  # the view is rolled back with its receipt
        return RUN
    if on_error == "release" or (on_error == "settle" and on_crash == "retry"):
        return RUN
    if on_error == "remember" and said == "open":
        return STORED
    return RUN if on_crash == "retry" else OPEN


@pytest.mark.parametrize(("made", "setting"), SETTINGS, indirect=["made"])
def test_what_becomes_of_a_key_is_as_the_page_says(made: Made, setting: tuple[str, str]) -> None:
    name, (on_error, on_crash) = made.__name__, setting
    door = made(
        **({"on_error": on_error} if name in ("asgi", "wsgi") else {}),
        **({} if name == "django" else {"on_crash": on_crash}),
    )
    numbers = itertools.count(1)
    for (door.status, is_later), said in ANSWERS.items():
        door.headers = [("Location", "/charges/1"), *(RETRY if is_later else [])]
        check(door, f"k{next(numbers)}", fate_of(name, said, on_error, on_crash), door.status)
    for door.raises in ERRORS:
        fate = fate_of(name, "raised", on_error, on_crash)
        check(door, f"k{next(numbers)}", fate, None)


def check(door: Door, key: str, fate: Fate, status: int | None) -> None:
    """Send a request three times. Without a status the handler raises."""
    before = door.runs
    answers = [door.ask(key) for _ in range(3)]
    runs = door.runs - before
    assert runs == fate.runs, (key, status, answers)
    if fate.told is not None:
        assert [answer.json()["code"] for answer in answers[1:]] == [fate.told] * 2, (key, status)
    elif status is not None:
        assert [answer.status_code for answer in answers] == [status] * 3
        assert ["idempotency-replayed" in answer.headers for answer in answers] == [False] + [fate == STORED] * 2


KEPT = [
    ("Content-Type", "application/json; charset=utf-8"),
    ("Content-Encoding", "gzip"),
    ("Content-Disposition", 'attachment; filename="a.json"'),
    ("Content-Language", "en"),
    ("Vary", "Origin"),
    ("Access-Control-Allow-Origin", "https://shop.test"),
    ("Access-Control-Allow-Credentials", "true"),
    ("Access-Control-Expose-Headers", "X-Total"),
    ("ETag", '"7"'),
    ("Last-Modified", "Tue, 17 Nov 2026 08:00:00 GMT"),
    ("Cache-Control", "no-store"),
    ("Location", "/charges/7"),
    ("Link", "</charges/7>; rel=self"),
    ("Strict-Transport-Security", "max-age=1"),
    ("X-Total", "7"),
]
REPEATED = [("Link", "</charges>; rel=up"), ("Vary", "Accept"), ("WWW-Authenticate", "A"), ("WWW-Authenticate", "B")]
DROPPED = [
    ("Set-Cookie", "session=secret"),
    ("Date", "Tue, 17 Nov 2026 08:00:00 GMT"),
    ("Connection", "X-Hop, keep-alive"),
    ("X-Hop", "1"),
    ("Keep-Alive", "timeout=5"),
    ("Proxy-Authenticate", "Basic"),
    ("Trailer", "X-Sum"),
    ("Upgrade", "h2c"),
]


def test_a_replay_carries_every_header_of_the_message_and_none_of_the_connection(door: Door, made: Made) -> None:
    repeated = [] if made.__name__ == "django" else REPEATED  # its headers are a mapping
    content = b'{"charge": 7}'
    door.headers, door.body = [*KEPT, *repeated, *DROPPED], gzip.compress(content)
    first, again = door.ask(), door.ask()
    assert first.content == again.content == content
    assert door.runs == 1
    kept = sorted((name.lower(), value) for name, value in [*KEPT, *repeated])
    names = {name for name, _ in kept}
    for answer in (first, again):
        assert sorted(one for one in answer.headers.multi_items() if one[0] in names) == kept
    dropped = {name.lower() for name, _ in DROPPED}
    if made.__name__ == "proxy":
        dropped -= {"date", "connection"}  # its server writes those of this answer
        assert again.headers.get("date") != dict(DROPPED)["Date"]
    assert not dropped & again.headers.keys()
    assert again.headers["idempotency-replayed"] == "true"
    assert b"session=secret" not in b"".join(file.read_bytes() for file in door.folder.iterdir())


@pytest.mark.parametrize("status", [204, 205, 304])
def test_a_replay_without_a_body_gets_no_headers_that_the_first_one_lacks(door: Door, status: int) -> None:
    door.status, door.headers, door.body = status, [("X-Total", "7")], b""
    first, again = door.ask(), door.ask()
    added = again.headers.keys() - first.headers.keys()
    assert (first.status_code, again.status_code, again.content) == (status, status, b"")
    assert added <= {"idempotency-replayed", "content-length"}
    assert "content-type" not in again.headers


@pytest.mark.parametrize("made", ["asgi", "wsgi", "django"], indirect=True)  # that of a proxy is a header
def test_a_request_without_a_scope_is_refused_before_its_handler(made: Made, caplog: pytest.LogCaptureFixture) -> None:
    door = made()
    for number, nobody in enumerate((None, ""), 1):
        door.scope = lambda request: nobody  # noqa: B023 - called at once
        answer = door.ask()
        assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_scope_missing")
        assert len([line for line in caplog.messages if "no scope" in line]) == number
    door.scope = lambda request: object()
    assert door.ask().json()["code"] in ("InvalidKey", "invalid_key")
    assert door.runs == 0


@pytest.mark.parametrize("made", ["asgi", "wsgi", "django"], indirect=True)
@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("error", [ConnectionResetError("bank"), ValueError("amount")])
def test_an_error_of_a_handler_reaches_its_server(made: Made, key: str | None, error: Exception) -> None:
    door = made(**({"is_required": False} if made.__name__ == "django" else {}))
    door.raises = error
    assert door.ask(key).json()["code"] == type(error).__name__

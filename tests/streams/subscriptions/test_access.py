"""Who may use a subscription: only a caller that reaches everything it follows, and may read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.server import RunningServer
from tests.harness.tokens import token_file
from tests.streams.subscriptions.receiver import Control, code_of

KNOWN = {
    "all": ("a" * 32, ["read", "write"], []),
    "few": ("f" * 32, ["read", "write"], ["streams:open/*"]),
    "blind": ("b" * 32, ["write"], ["streams:open/*"]),
    "mute": ("m" * 32, ["read"], ["streams:open/*"]),
}
BODY = {"type": "pull-wake", "pattern": "open/in/*", "wake_stream": "open/wakes"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    with RunningServer(folder / "data", env={"SEMEL_TOKENS": str(token_file(folder, KNOWN))}) as running:
        yield running


def as_caller(server: RunningServer, name: str) -> Control:
    return Control(server.url, KNOWN[name][0])


@pytest.mark.parametrize("pattern", ["**", "open/../**", "*/in/*", "ope*", "open/**", "closed/*", "open"])
def test_a_pattern_beyond_the_reach_of_its_caller_is_refused(guarded: RunningServer, pattern: str) -> None:
    with as_caller(guarded, "few") as few:
        assert few.put("wide", **BODY | {"pattern": pattern}).status_code in (400, 403)


def test_a_repeated_put_shows_no_stream_beyond_the_reach_of_its_caller(guarded: RunningServer) -> None:
    with as_caller(guarded, "all") as every, as_caller(guarded, "few") as few:
        assert few.put("mine", **BODY).status_code == 201
        assert few.put("mine", **BODY).status_code == 200
        assert every.call("mine", "streams", streams=["closed/secret"]).status_code == 204
        assert code_of(few.http.get("__ds/subscriptions/mine")) == (404, "SUBSCRIPTION_NOT_FOUND")
        assert code_of(few.put("mine", **BODY)) == (409, "SUBSCRIPTION_ALREADY_EXISTS")
        assert few.put("mine", **BODY).content == few.put("mine", **BODY | {"pattern": "open/x/*"}).content


@pytest.mark.parametrize("name", ["blind", "mute"])
def test_following_streams_needs_both_roles(guarded: RunningServer, name: str) -> None:
    with as_caller(guarded, name) as caller:
        assert code_of(caller.put(f"of-{name}", **BODY)) == (403, "FORBIDDEN")

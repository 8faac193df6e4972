"""A token gives way to its successor at one instant, without a restart; what is presented is judged, counted and, where
it fails, on record, and nothing of it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from semel.server.auth.credentials import TokenFileError, read_principals
from semel.server.settings_loader import make_settings
from semel.surfaces.registry import SCOPE_RULES
from tests.harness.server import HOST, RunningServer
from tests.harness.together import eventually
from tests.harness.tokens import token_file

OLD, NEW, FILED = "old-secret", "new-secret", "filed-secret"
HOUR_MS = 3_600_000


class RotatingSite:
    """A server with a rotation that ends in half an hour, on a clock that the test sets."""

    def __init__(self, folder: Path, **more: str) -> None:
        self._clock = folder / "clock"
        until = datetime.now(UTC) + timedelta(minutes=30)
        env = {
            "SEMEL_TOKEN_ACTIVE": OLD,
            "SEMEL_TOKEN_NEXT": NEW,
            "SEMEL_TOKEN_ROTATION_UNTIL": until.isoformat(),
            "SEMEL_CLOCK_FILE": str(self._clock),
            "SEMEL_STORE": "memory:",
        }
        self.server = RunningServer(folder / "data", env=env | more)

    def pass_the_instant(self) -> None:
        """It is an hour later."""
        self._clock.write_text(str(HOUR_MS))

    def get(self, *pairs: tuple[str, str], path: str = "/v1/caller") -> httpx.Response:
        return httpx.get(f"{self.server.url}{path}", headers=list(pairs), timeout=60)

    def status(self, token: str | None) -> int:
        return self.get(*([] if token is None else [("X-Semel-Token", token)])).status_code

    def counts(self) -> dict[str, float]:
        """How credentials were judged."""
        told = self.get(("X-Semel-Token", NEW), path="/metrics").json()
        return {name: value for name, value in told.items() if name.startswith("semel_auth_total")}

    def lines(self) -> list[dict[str, Any]]:
        """The audit log; none of it tells a token or a query."""
        text = "".join(file.read_text() for file in sorted((self.server.data / "logs").glob("audit*.jsonl")))
        assert "secret" not in text
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RotatingSite]:
    tokens = token_file(tmp_path, {"filed": (FILED, ["read"], [])})
    site = RotatingSite(tmp_path, SEMEL_TOKENS=str(tokens))
    with site.server:
        yield site


PRESENTED: Sequence[tuple[Sequence[tuple[str, str]], int]] = [
    ([], 401),
    ([("Authorization", f"Bearer {OLD}")], 200),
    ([("Authorization", f"bearer  {OLD}")], 200),
    ([("X-Semel-Token", OLD)], 200),
    ([("X-Sheratan-Token", OLD)], 200),
    ([("Authorization", f"Bearer {OLD}"), ("X-Semel-Token", OLD), ("X-Sheratan-Token", OLD)], 200),
    ([("Authorization", "Basic dTpw"), ("X-Semel-Token", OLD)], 200),
    ([("X-Semel-Token", "")], 401),
    ([("Authorization", OLD)], 401),
    ([("Authorization", "Bearer")], 401),
    ([("Authorization", f"Basic {OLD}")], 401),
    ([("Authorization", "Bearer wrong-secret")], 401),
    ([("Authorization", f"Bearer {OLD}"), ("X-Semel-Token", NEW)], 401),
    ([("X-Sheratan-Token", OLD), ("X-Semel-Token", NEW)], 401),
    ([("Authorization", f"Bearer {OLD}"), ("Authorization", f"Bearer {NEW}")], 401),
    ([("X-Semel-Token", OLD), ("X-Semel-Token", NEW)], 401),
    ([("Authorization", f"Bearer {OLD}"), ("X-Semel-Token", "")], 401),
]
"""Headers, and the answer: two different tokens are a wrong one."""


def test_a_token_comes_in_any_of_three_headers_and_is_counted_and_on_record(site: RotatingSite) -> None:
    before = site.counts()
    assert [site.get(*pairs, path="/v1/caller?q=secret").status_code for pairs, _ in PRESENTED] == [
        status for _, status in PRESENTED
    ]
    refused = [status for _, status in PRESENTED].count(401)

    def grown(outcome: str) -> float:
        name = f"semel_auth_total{{outcome={outcome}}}"
        return site.counts().get(name, 0) - before.get(name, 0)

    assert (grown("fail"), grown("active")) == (refused, len(PRESENTED) - refused)

    def reasons() -> list[str]:
        return [line["details"]["reason"] for line in site.lines() if line["event"] == "AUTH_FAILURE"]

    eventually(lambda: len(reasons()) >= 2, "failures are on record")
    assert set(reasons()) == {"missing_token", "bad_token"}


def test_through_a_rotation(site: RotatingSite) -> None:
    before = {token: site.status(token) for token in (OLD, NEW, FILED, "x", None)}
    assert before == {OLD: 200, NEW: 200, FILED: 200, "x": 401, None: 401}
    facts = [site.get(("X-Semel-Token", token)).json() for token in (OLD, NEW)]
    assert facts[0] | {"expires_ms": None} == facts[1]
    site.pass_the_instant()
    assert {token: site.status(token) for token in (OLD, NEW, FILED)} == {OLD: 401, NEW: 200, FILED: 200}
    told = [site.get(("X-Semel-Token", token)) for token in (OLD, "x")]
    assert told[0].json() == told[1].json()
    assert told[0].headers["WWW-Authenticate"] == told[1].headers["WWW-Authenticate"], "a retired token is a wrong one"
    assert site.counts()["semel_auth_total{outcome=retired_token}"] >= 2
    site.server.restart()  # or a minute later

    def events() -> list[str]:
        return [line["event"] for line in site.lines()]

    eventually(lambda: "TOKEN_ROTATION_FINALIZED" in events(), "the end of the rotation is on record")
    assert {"TOKEN_ACCEPTED_NEXT", "TOKEN_RETIRED"} <= set(events())
    where = {"path": "/v1/caller", "remote_addr": HOST}
    found = [line["details"] for line in site.lines() if line["event"] == "TOKEN_RETIRED"]
    assert {name: found[0][name] for name in where} == where


def test_a_live_read_ends_with_the_token_that_it_was_begun_with(tmp_path: Path) -> None:
    until = datetime.now(UTC) + timedelta(seconds=4)
    env = {"SEMEL_STREAMS_SSE_MAX_MS": "600000", "SEMEL_TOKEN_ROTATION_UNTIL": until.isoformat()}
    site, old = RotatingSite(tmp_path, **env), {"X-Semel-Token": OLD}
    with site.server as server:
        url = f"{server.url}/v1/stream/s"
        httpx.put(url, headers=old | {"Content-Type": "text/plain"}).raise_for_status()
        with httpx.stream("GET", url, params={"live": "sse", "offset": "now"}, headers=old, timeout=60) as answer:
            assert answer.status_code == 200
            assert b"".join(answer.iter_raw())
        assert time.time() >= until.timestamp()
        assert site.status(OLD) == 401


def test_where_none_is_needed_a_wrong_one_is_still_refused(tmp_path: Path) -> None:
    site = RotatingSite(tmp_path, SEMEL_TOKEN_REQUIRED="0")
    with site.server:
        assert {token: site.status(token) for token in (None, OLD, "x")} == {None: 200, OLD: 200, "x": 401}
        site.pass_the_instant()
        assert {token: site.status(token) for token in (None, OLD, NEW)} == {None: 200, OLD: 401, NEW: 200}


def test_a_token_of_the_file_cannot_be_the_configured_one(tmp_path: Path) -> None:
    entries: Mapping[str, tuple[str, Sequence[str], Sequence[str]]] = {"twin": (NEW, ["read"], [])}
    file = token_file(tmp_path, entries)
    with pytest.raises(TokenFileError, match="twin"):
        read_principals(make_settings(tokens=str(file), token_active=OLD, token_next=NEW), SCOPE_RULES)


@pytest.mark.parametrize(
    "more", [{"SEMEL_TOKEN_NEXT": OLD}, {"SEMEL_TOKEN_ROTATION_UNTIL": ""}], ids=["same", "no end"]
)
def test_a_token_without_another_successor_or_without_an_end_does_not_retire(
    tmp_path: Path, more: dict[str, str]
) -> None:
    site = RotatingSite(tmp_path, **more)
    with site.server:
        before = site.status(OLD)
        site.pass_the_instant()
        assert [before, site.status(OLD)] == [200, 200]

"""What settings change: a list of gateways, a list of origins, ids that are believed, smaller limits."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.deltas.wire import CLIENT, Deltas, columns, delta, forged, path, serving

FRIEND, STRANGER = {"Origin": "https://app.example"}, {"Origin": "https://evil.example"}
BODY_BYTES = 2_000
MOST = 3


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deltas]:
    """Settings that nobody would have all at once; one store will do for them."""
    settings = {
        "GATEWAYS": "legacy,caf\u00e9,plain",
        "CHECK_IDS": "false",
        "MAX_BODY_BYTES": str(BODY_BYTES),
        "MAX_DELTAS": str(MOST),
    }
    env = {f"SEMEL_DELTAS_{name}": value for name, value in settings.items()}
    env["SEMEL_ALLOWED_ORIGINS"] = "https://app.example,https://other.example"
    with serving(tmp_path_factory.mktemp("configured") / "data", env=env) as deltas:
        yield deltas


def test_gateways_of_a_list(odd: Deltas) -> None:
    for gateway in ("plain", "caf\u00e9"):
        odd.push(gateway, [])
        odd.pull(gateway)
    for gateway in ("other", "Plain", "plain ", "legacy,plain"):
        assert odd.push(gateway, [], expect=404).code == "NOT_FOUND"
        assert odd.pull(gateway, expect=404).code == "NOT_FOUND"
        assert odd.schema(gateway, "todos", title="string", expect=404).code == "NOT_FOUND"
        assert odd.call("GET", path(gateway, "metrics"), expect=404).code == "NOT_FOUND"


@pytest.mark.parametrize("method", ["OPTIONS", "POST", "GET"])
def test_origins_of_a_list(odd: Deltas, method: str) -> None:
    target = path("plain", "push" if method == "POST" else "actions")
    body = b'{"clientId": "c", "deltas": []}' if method == "POST" else None
    friend, stranger = (odd.send(method, target, body, origin) for origin in (FRIEND, STRANGER))
    assert friend.headers["Access-Control-Allow-Origin"] == FRIEND["Origin"]
    assert not [name for name in stranger.headers if name.lower().startswith("access-control-allow")]
    assert (friend.status_code, stranger.status_code) == (204 if method == "OPTIONS" else 200, 403)
    assert stranger.json()["code"] == "FORBIDDEN_ORIGIN"


@pytest.mark.parametrize(
    "origin", ["null", "https://app.example.evil.example", "https://app.example/", "http://app.example"]
)
def test_origins_that_only_look_alike(odd: Deltas, origin: str) -> None:
    response = odd.send("GET", path("plain", "actions"), None, {"Origin": origin})
    assert not [name for name in response.headers if name.lower().startswith("access-control-allow")]
    assert (response.status_code, response.json()["code"]) == (403, "FORBIDDEN_ORIGIN")


def test_ids_of_older_data_are_believed(odd: Deltas) -> None:
    """The switch turns one check off: the id must still look like one, and is known once it was there."""
    made = forged(delta("INSERT", columns(title="old")))
    body = json.dumps({"clientId": CLIENT, "deltas": [made]}).encode()
    told = odd.push_raw("legacy", body)
    assert (told["accepted"], told["duplicates"]) == (1, 0)
    assert odd.push_raw("legacy", body)["duplicates"] == 1
    for unlike in ("0" * 63, "G" * 64, made["deltaId"].upper(), "0" * 64 + "\n", None):
        flawed = json.dumps({"clientId": CLIENT, "deltas": [made | {"deltaId": unlike}]}).encode()
        assert odd.push_raw("legacy", flawed, expect=400).code == "VALIDATION_ERROR"


def test_smaller_limits(odd: Deltas) -> None:
    made = [delta("INSERT", columns(n=number), row=str(number)) for number in range(MOST + 1)]
    assert odd.push("plain", made, expect=400).code == "VALIDATION_ERROR"
    assert odd.push("plain", made[:-1])["accepted"] == MOST
    body = json.dumps({"clientId": CLIENT, "deltas": []}).encode()
    padded = body + b" " * (BODY_BYTES - len(body))
    assert odd.push_raw("plain", padded)["accepted"] == 0
    assert odd.push_raw("plain", padded + b" ", expect=413).code == "VALIDATION_ERROR"
    assert odd.push_raw("plain", iter([padded, b" "]), expect=413).code == "VALIDATION_ERROR"

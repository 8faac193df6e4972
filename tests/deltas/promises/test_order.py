"""A push is checked step by step: what is wrong twice is told the earlier flaw, and nothing of it is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.deltas.rig import check_nothing_stored, digest_of, signed, wrong_clock
from tests.deltas.vectors import JWT_SECRET, LARGEST, now_ms, stamp
from tests.deltas.wire import CLIENT, Deltas, Message, columns, delta, forged, fresh, serving

MANY = 10_001
INVALID, SCHEMA = "VALIDATION_ERROR", "SCHEMA_ERROR"
KNOWN_TABLE = "known"
"""Has a schema with the column `title` alone."""

SHAPELESS = None
BAD_NAME = delta("INSERT", columns(title=1), table="no-name")
FORGED = forged(delta("INSERT", columns(title=1), row="forged"))
UNKNOWN = delta("INSERT", columns(colour=1), row="unknown", table=KNOWN_TABLE)
DRIFTED = delta("INSERT", columns(title=1), row="drifted", hlc=LARGEST)
GOOD = delta("INSERT", columns(title=1), row="good", table=KNOWN_TABLE)
FOREIGN = delta("INSERT", columns(title=1), client="somebody-else")


class Case(NamedTuple):
    """Deltas of one push, and what it is told."""

    deltas: list[Any]
    status: int
    code: str
    blamed: list[tuple[int, str]]


LADDER = {
    "shape before identity": Case([FORGED, SHAPELESS], 400, INVALID, [(1, INVALID)]),
    "name before identity": Case([FORGED, BAD_NAME], 422, SCHEMA, [(1, SCHEMA)]),
    "name before identity, in one delta": Case([forged(BAD_NAME)], 422, SCHEMA, [(0, SCHEMA)]),
    "shape before drift": Case([DRIFTED, SHAPELESS], 400, INVALID, [(1, INVALID)]),
    "shape before schema": Case([UNKNOWN, SHAPELESS], 400, INVALID, [(1, INVALID)]),
    "identity before schema": Case([UNKNOWN, FORGED], 422, INVALID, [(1, INVALID)]),
    "identity before schema, in one delta": Case([forged(UNKNOWN)], 422, INVALID, [(0, INVALID)]),
    "identity before drift": Case([DRIFTED, FORGED], 422, INVALID, [(1, INVALID)]),
    "identity before drift, in one delta": Case([GOOD, forged(DRIFTED)], 422, INVALID, [(1, INVALID)]),
    "schema before drift": Case([DRIFTED, UNKNOWN], 422, SCHEMA, [(1, SCHEMA)]),
    "schema before drift, in one delta": Case(
        [delta("INSERT", columns(colour=1), table=KNOWN_TABLE, hlc=LARGEST)], 422, SCHEMA, [(0, SCHEMA)]
    ),
    "drift": Case([GOOD, DRIFTED], 409, "CLOCK_DRIFT", [(1, "CLOCK_DRIFT")]),
    "every flawed one is named": Case(
        [SHAPELESS, GOOD, delta() | {"op": "x"}, []], 400, INVALID, [(0, INVALID), (2, INVALID), (3, INVALID)]
    ),
    "every forged one is named": Case([FORGED, GOOD, FORGED], 422, INVALID, [(0, INVALID), (2, INVALID)]),
    "every unknown column is named": Case([GOOD, UNKNOWN, UNKNOWN | {"op": "UPDATE"}], 422, SCHEMA, [(1, SCHEMA)]),
    "every drifted one is named": Case(
        [DRIFTED, GOOD, delta(hlc=LARGEST - 1)], 409, "CLOCK_DRIFT", [(0, "CLOCK_DRIFT"), (2, "CLOCK_DRIFT")]
    ),
}


@pytest.mark.parametrize("case", LADDER.values(), ids=LADDER.keys())
def test_the_earlier_step_is_told(deltas: Deltas, gateway: str, case: Case) -> None:
    deltas.schema(gateway, KNOWN_TABLE, title="string")
    told = deltas.push(gateway, case.deltas, expect=None)
    assert told.told == (case.status, case.code), told.body
    assert told.blamed[: len(case.blamed)] == case.blamed
    for one in told["details"]:
        pushed = case.deltas[one["index"]]
        assert set(one) == {"index", "deltaId", "code", "message"}
        assert not isinstance(pushed, dict) or one["deltaId"] == pushed["deltaId"]
    check_nothing_stored(deltas, gateway)
    assert deltas.push(gateway, [GOOD])["duplicates"] == 0


def test_too_many_comes_before_any_delta_is_looked_at(anywhere: Deltas, gateway: str) -> None:
    told = anywhere.push(gateway, [BAD_NAME] + [None] * (MANY - 1), expect=400)
    assert (told.code, told.get("details", [])) == (INVALID, [])
    told = anywhere.push(gateway, [None] * (MANY - 1), expect=400)
    assert told.blamed[0] == (0, INVALID)


# -- duplicates --------------------------------------------------------------------------------------------------------


def test_the_same_delta_twice_in_one_push(deltas: Deltas, gateway: str) -> None:
    other = delta("UPDATE", columns(title="b"), hlc="115998720000000001")
    told = deltas.push(gateway, [GOOD, other, GOOD, GOOD | {"op": "DELETE"}, other])
    assert (told["accepted"], told["duplicates"]) == (5, 3)
    assert told.ids == [GOOD["deltaId"], other["deltaId"]]
    assert deltas.log(gateway) == told["deltas"]
    assert deltas.gauges(gateway)["deltaCount"] == 2


def test_new_and_known_in_one_push(deltas: Deltas, gateway: str) -> None:
    old = [delta("INSERT", columns(n=number), row=f"old-{number}") for number in range(3)]
    new = [delta("INSERT", columns(n=number), row=f"new-{number}") for number in range(2)]
    deltas.push(gateway, old)
    told = deltas.push(gateway, [old[2], new[0], old[0], new[1], old[1]])
    assert (told["accepted"], told["duplicates"]) == (5, 3)
    assert told["deltas"] == new
    assert deltas.log(gateway) == old + new


def test_a_duplicate_may_break_a_schema_that_came_later(deltas: Deltas, gateway: str) -> None:
    old = delta("INSERT", columns(colour="red"))
    deltas.push(gateway, [old])
    deltas.schema(gateway, "todos", title="string")
    told = deltas.push(gateway, [old])
    assert (told["accepted"], told["duplicates"], told["deltas"]) == (1, 1, [])
    refused = deltas.push(gateway, [old, delta("INSERT", columns(colour="blue"))], expect=422)
    assert (refused.code, refused.blamed) == (SCHEMA, [(1, SCHEMA)])


def test_a_duplicate_is_held_against_its_hash(deltas: Deltas, gateway: str) -> None:
    deltas.push(gateway, [GOOD])
    before = digest_of(deltas, gateway)
    told = deltas.push(gateway, [GOOD, GOOD | {"columns": columns(title=2)}], expect=422)
    assert (told.code, told.blamed) == (INVALID, [(1, INVALID)])
    assert digest_of(deltas, gateway) == before


def test_a_duplicate_may_be_ahead_of_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """An hour ahead, the server takes a stamp of that hour; set right and started again, it knows the delta still."""
    ahead = delta("INSERT", columns(title="x"), hlc=stamp(now_ms() + 3_600_000))
    with serving(tmp_path / "data", env=wrong_clock(tmp_path, 3_600_000)) as early:
        first = early.push("gw", [ahead])
        assert first["duplicates"] == 0
    with serving(tmp_path / "data") as right:
        told = right.push("gw", [ahead])
        assert (told["accepted"], told["duplicates"], told["deltas"]) == (1, 1, [])
        assert told.hlc >= first.hlc
        new = delta("INSERT", columns(title="y"), hlc=stamp(now_ms() + 3_600_000))
        refused = right.push("gw", [ahead, new], expect=409)
        assert refused.blamed == [(1, "CLOCK_DRIFT")]
        late = right.push("gw", [GOOD])
        assert late.hlc > told.hlc
        # Whoever has read up to the first answer's cursor still gets what came after it.
        assert right.pull("gw", told["serverHlc"])["deltas"] == [GOOD]


# -- with credentials --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deltas]:
    """Wants tokens; the store cannot matter."""
    data = tmp_path_factory.mktemp("order") / "data"
    with serving(data, "memory", DELTAS_JWT_SECRET=JWT_SECRET) as deltas:
        yield deltas


AS_OTHER = "another-client"
GUARDED: dict[str, tuple[bytes, int, str]] = {
    "too large before json": (b"x" * (1024 * 1024 + 1), 413, INVALID),
    "json before client": (json.dumps({"clientId": AS_OTHER, "deltas": []}).encode()[:-1], 400, INVALID),
    "a name twice before client": (
        b'{"clientId": "another-client", "deltas": [], "x": {"a": 1, "a": 1}}',
        400,
        INVALID,
    ),
    "depth before client": (
        b'{"clientId": "another-client", "deltas": [], "x": ' + b"[" * 90 + b"]" * 90 + b"}",
        400,
        INVALID,
    ),
    "no list before client": (b'{"clientId": "another-client", "deltas": {}}', 400, INVALID),
    "client before number": (
        b'{"clientId": "another-client", "deltas": [' + b"0," * (MANY - 1) + b"0]}",
        403,
        "FORBIDDEN",
    ),
    "client before shape": (b'{"clientId": "another-client", "deltas": [null]}', 403, "FORBIDDEN"),
    "number before foreign author": (
        json.dumps({"clientId": CLIENT, "deltas": [FOREIGN] + [0] * (MANY - 1)}).encode(),
        400,
        INVALID,
    ),
    "foreign author before identity": (
        json.dumps({"clientId": CLIENT, "deltas": [FORGED, FOREIGN]}).encode(),
        403,
        "FORBIDDEN",
    ),
    "foreign author before drift": (
        json.dumps({"clientId": CLIENT, "deltas": [DRIFTED, FOREIGN]}).encode(),
        403,
        "FORBIDDEN",
    ),
}


@pytest.mark.parametrize(("body", "status", "code"), GUARDED.values(), ids=GUARDED.keys())
def test_the_client_has_its_place_among_the_checks(guarded: Deltas, body: bytes, status: int, code: str) -> None:
    gateway = fresh("gw")
    claims: Message = {"sub": CLIENT, "gw": gateway, "exp": 4_102_444_800}
    token = {"Authorization": f"Bearer {signed(claims, JWT_SECRET)}"}
    assert guarded.push_raw(gateway, body, expect=None, headers=token).told == (status, code)
    admin = {"Authorization": f"Bearer {signed(claims | {'role': 'admin'}, JWT_SECRET)}"}
    gauges = guarded.call("GET", f"/v1/admin/metrics/{gateway}", headers=admin)
    assert gauges["deltaCount"] == 0
    # Credentials come before everything that the body could be.
    assert guarded.push_raw(gateway, body, expect=401).code == "AUTH_ERROR"
    other = {"Authorization": f"Bearer {signed(claims | {'gw': 'other'}, JWT_SECRET)}"}
    assert guarded.push_raw(gateway, body, expect=403, headers=other).code == "AUTH_ERROR"

"""Statuses and their details for machines: both wires, deadlines, versions of the API, rates and quotas."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.ledger import calls
from tests.ledger.http_wire import Route, place_path, problem_of
from tests.ledger.rig import Ledger, Site, SiteOf, request, serving
from tests.ledger.words import WIRES, Place, Refused, fresh, new_key, put, refused

pytestmark = pytest.mark.each_wire


def check_details(caught: Refused, error_code: str, *, is_retryable: bool, via: str) -> None:
    """What machines are told besides the status."""
    assert caught.error_code == error_code, caught
    if via == "grpc":
        assert caught.details["is_retryable"] is is_retryable, caught
    assert caught.message, caught


def test_an_invalid_argument(ledger: Ledger, place: Place) -> None:
    with refused("INVALID_ARGUMENT") as caught:
        ledger.write(place, "c", put("k" * 1025), sequence=1)
    check_details(caught.value, "3203", is_retryable=False, via=ledger.via)


def test_what_is_not_found(ledger: Ledger, place: Place) -> None:
    with refused("NOT_FOUND") as caught:
        ledger.height(Place(1))
    check_details(caught.value, "3100", is_retryable=False, via=ledger.via)
    with refused("NOT_FOUND") as caught:
        ledger.height(Place(place.org, 1))
    check_details(caught.value, "3101", is_retryable=False, via=ledger.via)


def test_errors_of_writes_travel_inside_the_answer(ledger: Ledger, place: Place) -> None:
    """gRPC says OK; statuses of HTTP are held against the table with every answer."""
    client = fresh("client")
    ledger.commit(place, client, put("a", b"1"), sequence=1, key=b"k" * 16)
    told = [
        ledger.write(place, client, put("a", not_exists=True), sequence=2),
        ledger.write(place, client, put("b", must_exists=True), sequence=2),
        ledger.write(place, client, put("a", version=7), sequence=2),
        ledger.write(place, client, put("a", value_equals=b"7"), sequence=2),
        ledger.write(place, client, put("a", b"1"), sequence=2, key=b"k" * 16),
        ledger.write(place, client, put("a", b"2"), key=b"k" * 16),
        ledger.write(place, client, put("a"), sequence=3),
    ]
    assert [one.code for one in told] == [
        "KEY_EXISTS",
        "KEY_NOT_FOUND",
        "VERSION_MISMATCH",
        "VALUE_MISMATCH",
        "ALREADY_COMMITTED",
        "IDEMPOTENCY_KEY_REUSED",
        "SEQUENCE_GAP",
    ]
    assert all(one.error["message"] for one in told)


@pytest.fixture
def grpc(site_of: SiteOf) -> Ledger:
    return site_of("sqlite").ledger("grpc")


@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.09])
def test_a_deadline_that_is_too_near(grpc: Ledger, seconds: float) -> None:
    """Refused before any work."""
    place, client = grpc.new_place(), fresh("client")
    asked = calls.encoded("Write", request(place, client, [put("a")], sequence=1))
    for _ in range(5):
        with refused("DEADLINE_EXCEEDED"):
            grpc.grpc.send("Write", asked, timeout=seconds)
    assert (grpc.last(place, client), grpc.height(place)) == (0, 0)
    assert grpc.commit(place, client, put("a"), sequence=1).height == 1


def test_a_method_that_does_not_exist(grpc: Ledger) -> None:
    for path in (
        "/ledger.v1.AdminService/CreateSnapshot",
        "/ledger.v1.WriteService/Nothing",
        "/no.such.Service/Write",
    ):
        with refused("UNIMPLEMENTED"):
            grpc.grpc.send(path, b"")


VERSIONS = {
    "1": "",
    "2": "FAILED_PRECONDITION",
    "0": "FAILED_PRECONDITION",
    "one": "INVALID_ARGUMENT",
    "1.0": "INVALID_ARGUMENT",
    "01": "",
    "+1": "INVALID_ARGUMENT",
    "-1": "INVALID_ARGUMENT",
    "9" * 20: "FAILED_PRECONDITION",
    "1" * 5_000: "INVALID_ARGUMENT",
}


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version[:21])
def test_versions_of_the_api(ledger: Ledger, place: Place, version: str) -> None:
    asked = request(place, "c", [put("a")], sequence=1)
    metadata = (("x-ledger-api-version", version),)
    if not VERSIONS[version]:
        ledger.wire.ask("Write", asked, metadata)
        assert ledger.height(place) == 1
        return
    with refused(VERSIONS[version]):
        ledger.wire.ask("Write", asked, metadata)
    with refused(VERSIONS[version]):
        ledger.wire.ask("GetTip", place.fields, metadata)
    assert ledger.height(place) == 0


@pytest.mark.parametrize("given", ["Basic x", "Bearer", "x", "Bearer a"])
def test_where_no_credentials_are_known_none_is_judged(ledger: Ledger, place: Place, given: str) -> None:
    metadata = (("authorization", given), ("x-api-key", "another"))
    ledger.wire.ask("Write", request(place, "c", [put("a")], sequence=1), metadata)
    assert ledger.transaction(place, 1)["actor"] == "client:anonymous"


def test_requests_and_traces_have_names(grpc: Ledger) -> None:
    place = grpc.new_place()
    trace = "0af7651916cd43dd8448eb211c80319c"
    asked = calls.encoded("GetTip", place.fields)
    _, headers = grpc.grpc.send("GetTip", asked, (("traceparent", f"00-{trace}-b7ad6b7169203331-01"),))
    assert headers["x-trace-id"] == trace
    _, others = grpc.grpc.send("GetTip", asked)
    assert others["x-trace-id"] != trace
    assert others["x-request-id"] != headers["x-request-id"]
    with refused("INVALID_ARGUMENT"):
        grpc.grpc.send("GetTip", asked, (("x-ledger-api-version", "x"), ("x-sdk-version", "test/1")))


def test_gzip_is_understood(grpc: Ledger) -> None:
    place, client = grpc.new_place(), fresh("client")
    asked = calls.encoded("Write", request(place, client, [put("a", b"v" * 100_000)], sequence=1))
    grpc.grpc.send("Write", asked, compression=calls.GZIP)
    assert grpc.value(place, "a") == b"v" * 100_000


def test_health(grpc: Ledger) -> None:
    place = grpc.new_place()
    assert grpc.ask("Check")["status"] == "HEALTH_STATUS_HEALTHY"
    assert grpc.ask("Check", place)["status"] == "HEALTH_STATUS_HEALTHY"
    standard, _ = grpc.grpc.send("/grpc.health.v1.Health/Check", b"", is_ours=False)
    assert standard == b"\x08\x01"


# -- rates and quotas -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One transaction a second, few organizations and vaults."""
    folder = tmp_path_factory.mktemp("narrow")
    with serving(folder / "data", "memory", LEDGER_WRITES_PER_SEC=1, LEDGER_MAX_ORGS=4, LEDGER_MAX_VAULTS=2) as site:
        yield site


@pytest.fixture(scope="module")
def homes(narrow: Site) -> dict[str, Place]:
    """An organization for each wire, and two more for the test of the limit."""
    return {via: narrow.ledger(via).new_org() for via in WIRES}


@pytest.mark.parametrize("via", WIRES)
def test_a_rate_never_hides_a_committed_write(narrow: Site, homes: dict[str, Place], via: str) -> None:
    ledger, place, client = narrow.ledger(via), homes[via], fresh("client")
    committed = []
    for number in range(200):
        key = new_key()
        try:
            told = ledger.write(place, client, put("k", str(number)), key=key)
        except Refused as error:
            caught = error
            break
        committed.append((key, number, told))
    else:
        pytest.fail("200 transactions in a row were let through")
    assert caught.code == "RESOURCE_EXHAUSTED"
    delay = caught.details["retry_after_ms"]
    assert 0 < int(delay) <= 60_000
    if via == "grpc":
        assert caught.details["retry-after-ms"] == str(delay)
        assert caught.details["is_retryable"] is True
    assert committed
    for key, number, first in committed:
        ledger.check_replay(ledger.write(place, client, put("k", str(number)), key=key), first)
    assert ledger.last(place, client) == len(committed)


def test_quotas_of_organizations_and_vaults(narrow: Site, homes: dict[str, Place]) -> None:
    ledger = narrow.ledger("grpc")
    while len(ledger.ask("ListOrganizations")["organizations"]) < 4:
        ledger.new_org()
    for via in WIRES:
        with refused("RESOURCE_EXHAUSTED"):
            narrow.ledger(via).new_org()
    org = homes["http"]
    while len(ledger.ask("ListVaults", org).get("vaults", [])) < 2:
        ledger.new_vault(org)
    for via in WIRES:
        with refused("RESOURCE_EXHAUSTED"):
            narrow.ledger(via).new_vault(org)


def test_a_rate_says_so_in_the_header_too(narrow: Site, homes: dict[str, Place]) -> None:
    ledger, place = narrow.ledger("http"), homes["http"]
    body = {"clientId": fresh("client"), "operations": [put("k")]}
    route = Route("POST", f"{place_path(place.fields)}/writes", body=body)
    for _ in range(200):
        response = ledger.http.send(route, {"Idempotency-Key": str(uuid.uuid4())})
        if response.status_code == 429:
            assert int(response.headers["Retry-After"]) >= 1
            assert problem_of(response).details["retry_after_ms"] > 0
            return
    pytest.fail("200 transactions in a row were let through")

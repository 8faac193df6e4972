"""Identities that mean harm are identities like any other: unknown, or refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.writes.write_site import STORES, WriteSite, write_site

HOSTILE = [
    "\x00",
    "a\x00b",
    "%",
    "%00",
    "%zz",
    "..",
    "../../etc/passwd",
    "/",
    "//",
    "?in=x",
    "#",
    "' OR 1=1 --",
    '"; DROP TABLE stream; --',
    "\\x00\\xff",
    "a\r\nx-evil: 1",
    "\u202e\u0000\ufeff",
    "\U0001f4a3" * 100,
    "9" * 4_096,
    "-1",
    "0",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "job_" + "f" * 4_000,
    "job_\u0661",
    "f" * 64 + "@",
    "f" * 64 + "@99999999999999999999",
    "0" * 64,
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "A" * 22 + "==",
    "c/18446744073709551615",
    "c/0",
    "\u0660/\u0661",
    "x" * 4_096,
]


@pytest.fixture(scope="module", params=STORES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriteSite]:
    with write_site(tmp_path_factory.mktemp("hostile"), request.param) as made:
        made.append("s", "k")
        made.submit_event("e")
        made.submit_job("j")
        made.transact(made.make_vault(), "00000000-0000-4000-8000-000000000001")
        made.push("g")
        yield made


@pytest.mark.parametrize("identity", HOSTILE, ids=lambda text: ascii(text)[:24])
def test_a_hostile_identity_is_an_unknown_one(site: WriteSite, identity: str) -> None:
    for place in (None, identity, "s", "1/2/3"):
        facts = site.sent("POST", "/v1/writes/find", {"id": identity} | ({} if place is None else {"in": place})).json()
        assert (facts["id"], facts["in"], facts["writes"]) == (identity, place, [])
    if len(identity) < 500:
        assert site.get(identity)["writes"] == []


@pytest.mark.parametrize("raw", [b"\xff", b"\xc3\x28", b"a\xffb", b"\x00\xff\xfe"])
def test_bytes_that_are_no_text_are_an_unknown_identity(site: WriteSite, raw: bytes) -> None:
    assert site.get(raw)["writes"] == []


def test_a_place_that_is_no_place_is_refused_or_empty(site: WriteSite) -> None:
    for place in HOSTILE:
        assert site.sent("POST", "/v1/writes/find", {"id": "k", "in": place}).json()["writes"] == []


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"{}", b'{"id": 1}', b'{"id": ""}', b'{"id": "a", "in": ""}', b'{"id": "a", "in": 1}', b"{"),
        *(b'{"id": "a", "more": 1}', b'{"id": "\\ud800"}', b'{"id": "%s"}' % (b"x" * 10_240), b'{"id": null}', b"\xff"),
    ],
)
def test_a_body_that_asks_for_nothing_is_refused(site: WriteSite, body: bytes) -> None:
    answer = site.client.post("/v1/writes/find", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_REQUEST"), answer.text


def test_what_is_too_large_is_refused(site: WriteSite) -> None:
    answer = site.client.post("/v1/writes/find", content=b'{"id": "%s"}' % (b"x" * 70_000))
    assert answer.status_code == 413
    assert site.client.get("/v1/writes/" + "x" * 10_240).status_code in (400, 414, 431)
    assert site.client.get("/v1/writes/").status_code == 404
    assert site.client.get("/v1/writes/k?in=a&in=b").status_code == 400
    assert site.client.get("/v1/writes/k?of=a").status_code == 400

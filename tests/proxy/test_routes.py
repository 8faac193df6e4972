"""The routes of a proxy, and the header fields on their way through it, as tables."""

from __future__ import annotations

import pytest

from semel.once.http_rules import Incoming
from semel.proxy.app import scope_of
from semel.proxy.headers import Peer, answer_fields, body_length, request_fields, unsendable
from semel.proxy.settings import RouteError, UpstreamError, policy_for, route_of, upstream_of

ROUTES = [
    route_of(text, "refuse") for text in ("POST /charges", "post /charges/* retry", "PUT /* retry", "DELETE /a/*")
]
PEER = Peer("10.0.0.9", "http", "", is_trusted=False)
TRUSTED = PEER._replace(is_trusted=True)
DATE = b"Tue, 17 Nov 2026 08:00:00 GMT"


@pytest.mark.parametrize(
    ("method", "path", "policy"),
    [
        ("POST", "/charges", "refuse"),
        ("POST", "/charges/", "retry"),
        ("POST", "/charges/7/refund", "retry"),
        ("POST", "/charges7", None),
        ("GET", "/charges", None),
        ("PUT", "/", "retry"),
        ("PUT", "/anything", "retry"),
        ("DELETE", "/a", None),
        ("DELETE", "/a/b", "refuse"),
    ],
)
def test_which_route_a_request_takes(method: str, path: str, policy: str | None) -> None:
    assert policy_for(ROUTES, method, path) == policy


@pytest.mark.parametrize(
    "text",
    ["", "POST", "GET /x", "POST x", "POST /x*", "POST /*/x", "POST /x?y=1", "POST /x maybe", "POST /x refuse more"],
)
def test_a_text_that_is_no_route_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(RouteError, match=r"\.$"):
        route_of(text, "refuse")


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1:8000", "ftp://h", "http://", "http://u:p@h", "http://h/x", "http://h:x"]
)
def test_a_text_that_is_no_upstream_is_refused_and_a_password_is_not_repeated(text: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        upstream_of(text)
    assert "u:p" not in str(caught.value)


def told(*fields: tuple[bytes, bytes], peer: Peer = PEER) -> dict[str, str]:
    return dict(request_fields(fields, peer))


def test_fields_of_one_connection_and_those_it_names_are_removed() -> None:
    fields = [
        (b"host", b"shop"),
        (b"connection", b"close, X-Secret"),
        (b"connection", b"x-other"),
        (b"x-secret", b"1"),
        (b"x-other", b"2"),
        (b"keep-alive", b"5"),
        (b"te", b"trailers"),
        (b"trailer", b"x"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"proxy-connection", b"x"),
        (b"proxy-authorization", b"x"),
        (b"expect", b"100-continue"),
        (b"cookie", b"a=1"),
        (b"cookie", b"b=2"),
    ]
    found = request_fields(fields, PEER)
    assert [name for name, _ in found] == [
        "host", "cookie", "cookie", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "via",
    ]  # fmt: skip
    assert answer_fields([(b"Connection", b"X-A"), (b"x-a", b"1"), (b"Date", b"d"), (b"X-B", b"2")], DATE) == [
        (b"Date", b"d"),
        (b"X-B", b"2"),
    ]
    assert answer_fields([], DATE) == [(b"date", DATE)]


def test_what_a_client_says_of_itself_is_believed_only_where_it_is_trusted() -> None:
    fields = (
        (b"host", b"shop"),
        (b"x-forwarded-for", b"1.1.1.1"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-host", b"shop.example"),
        (b"forwarded", b"for=1.1.1.1"),
        (b"via", b"1.1 edge"),
    )
    plain, trusted = told(*fields), told(*fields, peer=TRUSTED)
    assert plain["x-forwarded-for"] == "10.0.0.9"
    assert (plain["x-forwarded-proto"], plain["x-forwarded-host"]) == ("http", "shop")
    assert "forwarded" not in plain
    assert trusted["x-forwarded-for"] == "1.1.1.1, 10.0.0.9"
    assert (trusted["x-forwarded-proto"], trusted["x-forwarded-host"]) == ("https", "shop.example")
    assert trusted["forwarded"] == "for=1.1.1.1"
    assert plain["via"] == trusted["via"] == "1.1 edge, 1.1 semel"


def test_the_host_is_the_client_s_or_the_upstream_s() -> None:
    assert told((b"host", b"shop"))["host"] == "shop"
    assert told((b"host", b"shop"), peer=PEER._replace(host="up:80"))["host"] == "up:80"
    assert "host" not in told()


def test_a_value_that_would_arrive_changed_is_found() -> None:
    good = (b"x-name", "é".encode())
    assert told(good)["x-name"] == "é"
    assert unsendable([good]) == ""
    assert unsendable([good, (b"x-other", b"\xe9")]) == "x-other"


def test_how_long_a_body_is() -> None:
    assert body_length([]) == 0
    assert body_length([(b"content-length", b"7")]) == 7
    assert body_length([(b"transfer-encoding", b"chunked")]) is None


def scope(names: tuple[str, ...], **headers: bytes) -> str | None:
    found = {name.replace("_", "-").encode(): [value] for name, value in headers.items()}
    return scope_of(names)(Incoming("POST", "/", b"", found, {}))


def test_the_scope_is_a_hash_of_what_is_named_and_that_alone() -> None:
    one = scope(("Authorization",), authorization=b"Bearer a", host=b"h")
    assert one is not None
    assert "Bearer" not in one
    assert one == scope(("authorization",), authorization=b"Bearer a", host=b"other")
    assert one != scope(("Authorization",), authorization=b"Bearer b")
    assert scope(("Authorization",), host=b"h") is None
    both = ("Authorization", "Host")
    assert len({scope(both, host=b"a"), scope(both, authorization=b"a"), scope(both, host=b"b")}) == 3

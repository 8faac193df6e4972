"""`semel proxy` on real sockets, requests with a key: one effect, the same answer, honest refusals."""

from __future__ import annotations

import gzip
import socket
import sqlite3
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from semel.once import Once
from semel.once.claims import Act, ReceiptChange
from semel.once.errors import StoreUnavailable
from tests.harness.server import HOST, free_port
from tests.harness.together import at_once, eventually
from tests.once.counter import CERTIFICATE, counting
from tests.proxy.running import CLIENT, Process, exchanged, proxied
from tests.proxy.upstream import Upstream, reply, serving

KIB = 1_024
Ask = Callable[..., httpx.Response]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A service that has seen nothing."""
    with serving() as service:
        yield service


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Once]:
    """Receipts in a file."""
    found = Once(str(tmp_path / "proxy.db"))
    yield found
    found.close()


def asking(url: str) -> Ask:
    """POST with a key to a proxy."""

    def ask(
        path: str = "/charges", key: str | None = "k", body: bytes = b"5", method: str = "POST", **headers: str
    ) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            named["Idempotency-Key"] = key
        return CLIENT.request(method, url + path, content=body, headers=named)

    return ask


@pytest.fixture
def ask(upstream: Upstream, store: Once) -> Iterator[Ask]:
    """A proxy with small limits."""
    with proxied(upstream.url, store, max_body=64 * KIB, max_answer=64 * KIB, wait=25.0) as url:
        yield asking(url)


def code(answer: httpx.Response) -> tuple[int, str]:
    """The status, and the code of a problem document."""
    return answer.status_code, answer.json()["code"]


def test_a_retry_gets_the_same_answer_and_the_upstream_sees_one_request(ask: Ask, upstream: Upstream) -> None:
    first, again = ask(), ask()
    assert (first.status_code, first.text, first.headers["x-own"]) == (201, "charge 1 of 5", "yes")
    assert (again.status_code, again.text, again.headers["location"]) == (201, "charge 1 of 5", "/charges/1")
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert len(upstream.seen) == 1
    assert upstream.seen[0].values("idempotency-key") == ["k"]
    assert upstream.seen[0].body == b"5"


def test_another_request_with_the_key_is_422_and_is_not_forwarded(ask: Ask, upstream: Upstream) -> None:
    ask()
    for other in (ask(body=b"6"), ask("/charges?x=1"), ask("/%63harges")):
        assert code(other) == (422, "key_mismatch")
    assert len(upstream.seen) == 1


def test_callers_have_keys_of_their_own_and_no_credential_is_stored(
    upstream: Upstream, store: Once, tmp_path: Path
) -> None:
    with proxied(upstream.url, store, scope_headers=("authorization",)) as url:
        ask = asking(url)
        for caller in ("Bearer secret-a", "Bearer secret-b"):
            for _ in range(2):
                ask(Authorization=caller)
        assert code(ask()) == (400, "idempotency_scope_missing")
        assert ask(key=None).status_code == 201
    assert upstream.effects == 3
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("proxy.db*"))
    assert b"secret" not in stored
    rows = sqlite3.connect(tmp_path / "proxy.db").execute("SELECT scope FROM semel_once ORDER BY scope").fetchall()
    assert [scope.split(":")[1] for (scope,) in rows] == ["sha256", "sha256"]


def test_with_one_scope_two_callers_share_a_key(upstream: Upstream, store: Once) -> None:
    with proxied(upstream.url, store, scope_headers=()) as url:
        ask = asking(url)
        assert ask(Authorization="a").text == ask(Authorization="b").text
    assert upstream.effects == 1


def test_a_header_that_cannot_be_passed_on_is_400_and_the_key_is_not_claimed(ask: Ask, upstream: Upstream) -> None:
    url = str(ask("/unrouted").request.url.copy_with(path="/charges"))
    headers = [(b"Idempotency-Key", b"k"), (b"X-Name", b"secret\xe9")]
    refused = CLIENT.post(url, content=b"5", headers=headers)
    assert code(refused) == (400, "invalid_header")
    assert "secret" not in refused.text
    assert ask().text == "charge 2 of 5"


def test_racers_with_one_key_have_one_effect(ask: Ask, upstream: Upstream) -> None:
    threading.Timer(0.3, upstream.gate.set).start()
    answers = at_once([lambda: ask("/hold")] * 16)
    assert {answer.text for answer in answers} == {"charge 1 of 5"}
    assert upstream.effects == 1


def test_racers_at_two_proxies_have_one_effect(upstream: Upstream, store: Once, tmp_path: Path) -> None:
    beside = Once(str(tmp_path / "proxy.db"))
    with proxied(upstream.url, store, wait=25.0) as one, proxied(upstream.url, beside, wait=25.0) as other:
        threading.Timer(0.3, upstream.gate.set).start()
        answers = at_once([partial(asking(url), "/hold") for url in (one, other) * 4])
    beside.close()
    assert {answer.text for answer in answers} == {"charge 1 of 5"}
    assert upstream.effects == 1


def test_which_answers_are_remembered(ask: Ask, upstream: Upstream) -> None:
    for status, second, effects in [(200, 200, 1), (302, 302, 1), (404, 404, 1), (429, 429, 2), (500, 409, 1)]:
        before = upstream.effects
        assert [ask(f"/as/{status}", key=f"of-{status}").status_code for _ in range(2)] == [status, second]
        assert upstream.effects - before == effects, status


def test_without_a_key_a_request_of_a_route_is_passed_on_or_refused(ask: Ask, upstream: Upstream, store: Once) -> None:
    assert [ask(key=None).status_code for _ in range(2)] == [201, 201]
    assert upstream.effects == 2
    with proxied(upstream.url, store, is_key_required=True) as url:
        strict = asking(url)
        assert code(strict(key=None)) == (400, "key_required")
        assert strict("/unrouted", key=None).status_code == 201
    assert upstream.effects == 3


def test_a_request_above_the_cap_is_413_and_nothing_is_forwarded(ask: Ask, upstream: Upstream) -> None:
    assert code(ask(body=b"x" * (64 * KIB + 1))) == (413, "body_too_large")
    assert upstream.seen == []
    assert ask("/unrouted", body=b"x" * (64 * KIB + 1)).status_code == 201


def test_an_answer_above_the_cap_arrives_and_is_not_told_again(ask: Ask, upstream: Upstream) -> None:
    upstream.replies["/large"] = reply(201, b"y" * 300 * KIB)
    assert ask("/large").content == b"y" * 300 * KIB
    assert code(ask("/large")) == (409, "answer_not_stored")
    assert upstream.effects == 1


def test_a_compressed_answer_is_replayed_to_the_byte(ask: Ask, upstream: Upstream) -> None:
    packed = gzip.compress(b"a charge")
    upstream.replies["/charges"] = reply(201, packed, "Content-Encoding: gzip", "Content-Type: text/plain", "ETag: 7")
    for answer in (ask(), ask()):
        assert (answer.text, answer.headers["etag"]) == ("a charge", "7")
        assert answer.headers["content-length"] == str(len(packed))
    assert upstream.effects == 1


def test_an_answer_without_a_body_is_replayed(ask: Ask, upstream: Upstream) -> None:
    upstream.replies["/things/7"] = b"HTTP/1.1 204 No Content\r\nETag: 7\r\n\r\n"
    for answer in (ask("/things/7", method="PUT"), ask("/things/7", method="PUT")):
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (204, b"", "7")
    assert upstream.effects == 1


def test_a_body_in_chunks_is_the_same_request_as_one_with_a_length(ask: Ask, upstream: Upstream) -> None:
    first = CLIENT.post(
        str(ask(key="other").request.url), content=iter([b"1", b"2"]), headers={"Idempotency-Key": "k"}, timeout=25
    )
    assert ask(body=b"12").text == first.text
    assert upstream.seen[-1].values("content-length") == ["2"]


def test_an_upstream_that_is_not_there_is_502_and_the_key_is_free(upstream: Upstream, store: Once) -> None:
    port = free_port()
    with proxied(f"http://{HOST}:{port}", store) as url:
        ask = asking(url)
        assert code(ask()) == (502, "upstream_unreachable")
        with serving(port) as late:
            assert ask().text == "charge 1 of 5"
            assert ask().headers["idempotency-replayed"] == "true"
            assert late.effects == 1


def test_a_connection_that_takes_too_long_is_502_and_the_key_is_free(upstream: Upstream, store: Once) -> None:
    with socket.socket() as full, ExitStack() as waiting:
        full.bind((HOST, 0))
        full.listen(0)
        for _ in range(4):  # more than its queue holds: the next connection is not answered
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(full.getsockname())
        with proxied(f"http://{HOST}:{full.getsockname()[1]}", store, connect_timeout=0.5) as url:
            assert code(asking(url)()) == (502, "upstream_unreachable")
    with proxied(upstream.url, store) as url:
        assert asking(url)().text == "charge 1 of 5"


def test_an_upstream_without_a_valid_certificate_is_502_and_is_sent_nothing(store: Once, tmp_path: Path) -> None:
    pem = tmp_path / "pem"
    pem.write_text(CERTIFICATE)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    with counting(tls=tls) as service:
        with proxied(service.url, store) as url:
            assert code(asking(url)()) == (502, "upstream_unreachable")
        assert service.arrived == []
        proxy = Process("semel", "proxy", "--upstream", service.url, "--store", str(tmp_path / "b.db"))
        proxy.start("--scope", "none", "--route", "POST /charges", "--port", "{port}", SSL_CERT_FILE=str(pem))
        assert asking(proxy.url)().status_code == 201
        proxy.kill()
        assert [one.body for one in service.arrived] == [b"5"]


def test_an_answer_that_is_lost_is_unknown_and_is_never_run_again(ask: Ask, upstream: Upstream) -> None:
    for number, path in enumerate(["/lost", "/half"], start=1):
        for _ in range(3):
            assert code(ask(path, key=path)) == (409, "outcome_unknown")
        assert upstream.effects == number


def test_after_an_unknown_a_route_that_says_retry_runs_again(ask: Ask, upstream: Upstream) -> None:
    upstream.replies["/again"] = b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\nhalf"
    assert code(ask("/again")) == (409, "outcome_unknown")
    del upstream.replies["/again"]
    assert ask("/again").text == "charge 2 of 5"
    assert ask("/again").headers["idempotency-replayed"] == "true"
    assert upstream.effects == 2


@pytest.mark.parametrize(
    ("path", "times"),
    [("/drip", {"answer_timeout": 0.5}), ("/hold", {"idle_timeout": 1.0}), ("/hold", {"answer_timeout": 0.4})],
)
def test_an_answer_that_takes_too_long_is_unknown(
    upstream: Upstream, store: Once, path: str, times: dict[str, float]
) -> None:
    with proxied(upstream.url, store, **times) as url:
        ask = asking(url)
        for _ in range(2):
            assert code(ask(path)) == (409, "outcome_unknown")
    assert upstream.effects == 1


class FailingStore:
    """Fails once when a receipt is to be stored, and is well again behind it."""

    def __init__(self, store: Once) -> None:
        self._change = store.store.change
        self.failures = 1

    def change(self, change: ReceiptChange) -> object:
        """As the store does, but for one receipt."""
        if change.act is Act.FINISH and self.failures:
            self.failures -= 1
            raise StoreUnavailable("away")
        return self._change(change)


def test_a_receipt_that_cannot_be_stored_is_unknown_and_not_released(
    upstream: Upstream, store: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.store, "change", FailingStore(store).change)
    with proxied(upstream.url, store) as url:
        ask = asking(url)
        for _ in range(2):
            assert code(ask()) == (409, "outcome_unknown")
    assert upstream.effects == 1


def test_a_client_that_leaves_does_not_end_its_request(ask: Ask, upstream: Upstream) -> None:
    with pytest.raises(httpx.ReadTimeout):
        CLIENT.post(
            str(ask(key="x").request.url.copy_with(path="/hold")),
            content=b"5",
            headers={"Idempotency-Key": "k"},
            timeout=httpx.Timeout(25, read=0.5),
        )
    eventually(lambda: len(upstream.seen) == 2, "the request arrived")
    upstream.gate.set()
    assert ask("/hold").text == "charge 2 of 5"
    assert upstream.effects == 2


def test_a_client_that_stops_in_its_body_is_408_and_nothing_is_forwarded(upstream: Upstream, store: Once) -> None:
    with proxied(upstream.url, store, idle_timeout=0.3) as url:
        head = b"POST /charges HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: 10\r\n\r\n123"
        assert exchanged(url, head).startswith(b"HTTP/1.1 408 ")
    assert upstream.seen == []


def test_events_last_longer_than_the_time_for_a_whole_answer(upstream: Upstream, store: Once) -> None:
    """Their receipt says that the request took effect, so no retry runs it."""
    with proxied(upstream.url, store, answer_timeout=0.5) as url:
        ask = asking(url)
        events, again = ask("/events"), ask("/events")
    assert (events.status_code, events.text) == (200, "data: ping\n\n" * 50)
    assert (again.status_code, again.json()["code"]) == (409, "answer_not_stored")
    assert upstream.effects == 1

"""The rules of messages, as tables: what becomes of an answer, how long is waited, what may be posted."""

from __future__ import annotations

import random
from typing import Any

import pytest

from semel.kernel.keys import parse_idempotency_key
from semel.once import EnvSecret, InvalidKey, MessageState
from semel.once.delivery import retry_after_seconds
from semel.once.message_drafts import MessageDraft, message_of
from semel.once.messages import Delivery, LeasedMessage, OutboxMessage, RetryWaits, judged, key_header, wait_of

MIB = 1_048_576
DONE, QUEUED, POISON = MessageState.DONE, MessageState.QUEUED, MessageState.POISON


def leased(attempts: int = 1, refusals: int = 0) -> LeasedMessage:
    """A message that was tried so often."""
    message = OutboxMessage("k", "POST", "http://x/", {}, b"", b"")
    return LeasedMessage(1, "me", message, attempts, refusals, 0.0)


@pytest.mark.parametrize(
    ("status", "state"),
    [(200, DONE), (201, DONE), (204, DONE), (299, DONE)]
    + [(status, POISON) for status in (300, 301, 302, 304, 307, 308, 400, 404, 405, 410, 413, 415, 422, 451)]
    + [(status, QUEUED) for status in (100, 103, 401, 403, 408, 409, 421, 423, 425, 429, 500, 501, 502, 503, 504)],
)
def test_what_becomes_of_a_message_by_its_answer(status: int, state: MessageState) -> None:
    assert judged(Delivery(status), leased(), RetryWaits(), random.Random(1)).state is state


@pytest.mark.parametrize(
    ("delivery", "refusals", "state"),
    [
        (Delivery(503), 18, QUEUED),
        (Delivery(503), 19, POISON),
        (Delivery(error="no answer"), 19, POISON),
        (Delivery(error="no connection", is_seen=False), 19, QUEUED),
        (Delivery(error="no connection", is_seen=False), 500, QUEUED),
        (Delivery(409, is_final=True), 0, POISON),
        (Delivery(200), 500, DONE),
    ],
)
def test_only_tries_that_were_seen_make_poison(delivery: Delivery, refusals: int, state: MessageState) -> None:
    assert judged(delivery, leased(1_000, refusals), RetryWaits(20), random.Random(1)).state is state


def test_a_try_that_was_not_seen_is_not_counted() -> None:
    unseen = Delivery(error="no connection", is_seen=False)
    assert judged(unseen, leased(9, 5), RetryWaits(), random.Random(1)).refusals == 5
    assert judged(Delivery(503), leased(9, 5), RetryWaits(), random.Random(1)).refusals == 6


def test_waits_grow_twofold_with_jitter_up_to_the_longest() -> None:
    chance = random.Random(1)
    for attempts in range(1, 40):
        most = min(300.0, 0.5 * 2**attempts)
        waits = [wait_of(attempts, None, RetryWaits(), chance) for _ in range(50)]
        assert all(most / 2 <= wait <= most for wait in waits)
        assert len(set(waits)) > 40


@pytest.mark.parametrize(("asked", "least", "most"), [(120.0, 120, 120), (0.0, 0, 1), (1e9, 3_600, 3_600)])
def test_retry_after_is_obeyed_up_to_its_cap(asked: float, least: float, most: float) -> None:
    assert least <= wait_of(1, asked, RetryWaits(), random.Random(1)) <= most


AT_NOON = "Fri, 31 Dec 2100 12:00:00 GMT"
NOON = 4_133_937_600.0


@pytest.mark.parametrize(
    ("text", "date", "seconds"),
    [
        (None, None, None),
        ("7", None, 7.0),
        (" 0 ", None, 0.0),
        (AT_NOON, None, 30.0),
        (AT_NOON, "Fri, 31 Dec 2100 11:59:50 GMT", 10.0),
        ("Fri, 31 Dec 2010 12:00:00 GMT", None, 0.0),
        (AT_NOON, "nonsense", 30.0),
        ("-5", None, None),
        ("soon", None, None),
        ("", None, None),
    ],
)
def test_retry_after_as_seconds_and_as_a_date_by_the_other_sides_clock(
    text: str | None, date: str | None, seconds: float | None
) -> None:
    assert retry_after_seconds(text, date, NOON - 30) == seconds


@pytest.mark.parametrize("key", ["k", "a b", 'say "x"', "back\\slash", '"', "\\", " k "])
def test_a_key_is_quoted_and_read_back_as_it_was(key: str) -> None:
    assert parse_idempotency_key([key_header(key).encode()]) == key.encode()


def draft(**changes: Any) -> MessageDraft:
    """A draft that is fit, but for the changes."""
    return MessageDraft(**({"url": "https://pay.example/charges", "key": "k"} | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "ftp://x/"},
        {"url": "http://"},
        {"url": "/charges"},
        {"url": "http://x:99999/"},
        {"url": "http://x/a b"},
        {"url": "http://x/\u00e9"},
        {"url": "http://x/" + "a" * 9_000},
        {"url": "http://user:hunter2@x/"},
        {"key": ""},
        {"key": None},
        {"key": "k" * 257},
        {"key": "sch\u00f6n"},
        {"key": "a\nb"},
        {"method": "PO ST"},
        {"order_by": ""},
        {"order_by": "x\n"},
        {"json": 1, "data": b"x"},
        {"json": object()},
        {"json": float("nan")},
        {"data": b"x" * (MIB + 1)},
        {"headers": {"Idempotency-Key": "x"}},
        {"headers": {"host": "x"}},
        {"headers": {"content-length": "5"}},
        {"headers": {"X": "a\r\nY: b"}},
        {"headers": {"X Y": "a"}},
        {"headers": {"X": "\u20ac"}},
        {"headers": {"x": "1", "X": "2"}},
        {"headers": {"X": EnvSecret("NO SUCH NAME")}},
        {"headers": {"X": EnvSecret("NAME", "a\n")}},
        {"headers": {f"X-{number}": "" for number in range(65)}},
    ],
    ids=",".join,
)
def test_what_cannot_be_sent_is_refused_before_it_is_stored(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidKey) as refused:
        message_of(draft(**changes), MIB)
    assert "hunter2" not in str(refused.value)


def test_equal_json_is_equal_bytes_and_one_message() -> None:
    one, other = (message_of(draft(json=value), MIB) for value in ({"a": 1, "b": "\u00e9"}, {"b": "\u00e9", "a": 1}))
    assert one == other
    assert (one.body, one.headers) == ('{"a":1,"b":"\u00e9"}'.encode(), {"Content-Type": "application/json"})


@pytest.mark.parametrize(
    "changes", [{"json": 2}, {"method": "PUT"}, {"url": "https://pay.example/"}, {"headers": {"Content-Type": "a/b"}}]
)
def test_another_body_method_url_or_content_type_is_another_request(changes: dict[str, Any]) -> None:
    assert message_of(draft(**({"json": 1} | changes)), MIB).fingerprint != message_of(draft(json=1), MIB).fingerprint


def test_other_headers_are_not_compared_so_a_token_may_change() -> None:
    one, other = (message_of(draft(json=1, headers={"Authorization": token}), MIB) for token in ("a", "b"))
    assert one.fingerprint == other.fingerprint

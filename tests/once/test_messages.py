"""The rules of messages, as tables: what becomes of an answer, how long is waited, what may be posted."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.kernel.keys import parse_idempotency_key
from semel.once import EnvSecret, InvalidKey, MessageState, Outbox
from semel.once.delivery import retry_after_seconds
from semel.once.dispatcher import Dispatcher
from semel.once.message_drafts import MessageDraft, message_of
from semel.once.messages import (
    Delivery,
    LeasedMessage,
    OutboxMessage,
    RetryWaits,
    fate_before,
    judged,
    key_header,
    wait_of,
)

MIB = 1_048_576
DONE, QUEUED, POISON, UNKNOWN = MessageState.DONE, MessageState.QUEUED, MessageState.POISON, MessageState.UNKNOWN
HOUR, DAY = 3_600.0, 86_400.0


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


COUNTED, NOT_COUNTED, MAYBE, NEVER = True, False, True, False


@pytest.mark.parametrize(
    ("delivery", "is_counted", "may_have_arrived"),
    [
        *((Delivery(status), COUNTED, NEVER) for status in (403, 409, 423)),
        *((Delivery(status), NOT_COUNTED, NEVER) for status in (401, 408, 421, 425, 429)),
        *((Delivery(status), COUNTED, MAYBE) for status in (500, 501, 505, 507)),
        *((Delivery(status), NOT_COUNTED, MAYBE) for status in (502, 503, 504)),
        *((Delivery(status, retry_after=1.0), NOT_COUNTED, MAYBE) for status in (500, 502, 504)),
        (Delivery(429, retry_after=1.0), NOT_COUNTED, NEVER),
        (Delivery(503, retry_after=0.0), NOT_COUNTED, NEVER),
        (Delivery(error="no answer: timed out"), NOT_COUNTED, MAYBE),
        (Delivery(error="no connection", is_seen=False), NOT_COUNTED, NEVER),
    ],
)
def test_only_an_answer_about_a_message_counts_as_its_refusal(
    delivery: Delivery, is_counted: bool, may_have_arrived: bool
) -> None:
    fate = judged(delivery, leased(1_000, 5), RetryWaits(20), random.Random(1))
    assert (fate.state, fate.refusals, fate.may_have_arrived) == (QUEUED, 5 + is_counted, may_have_arrived)
    last = judged(delivery, leased(1_000, 19), RetryWaits(20), random.Random(1))
    assert last.state is (POISON if is_counted else QUEUED)


@pytest.mark.parametrize(
    ("delivery", "may_have_arrived"),
    [
        (Delivery(404), NEVER),
        (Delivery(409, is_final=True), NEVER),
        (Delivery(422), NEVER),
        (Delivery(303), MAYBE),
        (Delivery(error="rejected", is_final=True), MAYBE),
    ],
)
def test_a_final_answer_is_poison_at_once(delivery: Delivery, may_have_arrived: bool) -> None:
    fate = judged(delivery, leased(), RetryWaits(), random.Random(1))
    assert (fate.state, fate.may_have_arrived) == (POISON, may_have_arrived)


@pytest.mark.parametrize(
    ("age", "arrived", "state"),
    [
        (0, None, None),
        (3 * DAY - 1, None, None),
        (3 * DAY, None, POISON),
        (-DAY, None, None),
        (0, 0, None),
        (30 * HOUR, 23 * HOUR - 1, None),
        (30 * HOUR, 23 * HOUR, UNKNOWN),
        (3 * DAY, HOUR, UNKNOWN),
        (0, -60, None),
        (0, -61, UNKNOWN),
    ],
)
def test_what_is_too_old_is_not_sent_again(age: float, arrived: float | None, state: MessageState | None) -> None:
    old = leased(2)._replace(age_seconds=age, arrived_seconds=arrived, error="refused with 503")
    fate = fate_before(old, RetryWaits())
    assert (fate.state if fate else None) is state
    assert fate is None or "(last attempt: refused with 503)" in str(fate.reason)


def test_what_waited_for_its_turn_is_tried_once_however_old_it_is() -> None:
    assert fate_before(leased(1)._replace(age_seconds=30 * DAY), RetryWaits()) is None


class KilledError(BaseException):
    """The sender dies here."""


OUTCOMES: dict[str, Delivery] = {
    "429": Delivery(429),
    "503": Delivery(503),
    "503, wait": Delivery(503, retry_after=600.0),
    "502": Delivery(502),
    "lost": Delivery(error="no answer"),
    "unreachable": Delivery(error="no connection", is_seen=False),
    "killed": Delivery(),
}
HARMLESS = {"429", "503, wait", "unreachable"}
STEPS = (0.0, 1.0, 400.0, HOUR, 5 * HOUR, 11 * HOUR, DAY)
moments = st.tuples(st.sampled_from(STEPS), st.sampled_from(sorted(OUTCOMES)), st.booleans())


@settings(max_examples=150, deadline=None)
@given(st.lists(moments, min_size=1, max_size=25))
def test_no_attempt_comes_after_the_receiver_may_have_forgotten_the_key(moments: list[tuple[float, str, bool]]) -> None:
    now, boot, sent = [1_800_000_000.0], [1_799_990_000.0], list[float]()
    outcome = [""]

    def transport(*_: object) -> Delivery:
        sent.append(now[0])
        if outcome[0] == "killed":
            raise KilledError
        return OUTCOMES[outcome[0]]

    box = Outbox(
        ":memory:", max_attempts=1, transport=transport, clock=lambda: now[0], monotonic=lambda: now[0] - boot[0]
    )
    box.post("http://x/", json=1, key="k")
    born, state = now[0], box.state("k")
    first: float | None = None
    for step, outcome[0], has_restarted in moments:
        now[0] += step
        boot[0] = now[0] if has_restarted else boot[0]  # the monotonic clock begins anew with the machine
        before, known = len(sent), first
        dispatcher = Dispatcher(box._route)
        for taken in dispatcher._leased(1):
            with suppress(KilledError):
                dispatcher._carry(taken)
        if len(sent) > before:
            assert state not in (POISON, UNKNOWN)
            assert known is None or now[0] - known < 23 * HOUR
            if outcome[0] not in HARMLESS and first is None:
                first = now[0]
        state = box.state("k")
        assert state is not POISON or (first is None and now[0] - born >= 3 * DAY)
        assert state is not UNKNOWN or first is not None
    box.close()


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
        {"order_by": object()},
        {"order_by": str.upper},
        {"order_by": True},
        {"key": object()},
        {"key": True},
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

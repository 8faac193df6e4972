"""Plain bodies against the full parser: what the short parser takes, the full one takes, with the same values."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields
from semel.surfaces.ledger.commands import PreparedWrite
from semel.surfaces.ledger.limits import MAX_BULK, LedgerLimits
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.validation import prepare
from semel.surfaces.ledger.wire.bodies import WriteDraft, parse_bulk, parse_write
from semel.surfaces.ledger.wire.plain_bodies import plain_bulk, plain_write
from semel.surfaces.ledger.wire.usual_bodies import usual_bulk, usual_write

NO_FIELDS = HeaderFields([])
MOST = 4
CASES = 4_000
PLACE = LedgerPlace(5, 7)
LIMITS = (
    LedgerLimits(max_operations=MOST),
    LedgerLimits(max_operations=MOST, max_key_bytes=6, max_value_bytes=30, max_payload_bytes=35),
)


def prepared(draft: WriteDraft | Refused, limits: LedgerLimits) -> PreparedWrite:
    """The transaction of a body, by the full parser and the full validation; `Refused` if it is not valid."""
    assert isinstance(draft, WriteDraft)
    assert not draft.wants_proof
    return prepare(limits, PLACE, draft.client.encode(), draft.sequence, draft.key, draft.operations)


class Drawn:
    """Bodies by chance: mostly plain, with something odd here and there."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def text(self) -> str:
        odd = ["", "a", "ключ", "\u0000", "x" * 300, '"', "\\", "\U0001f600", "a b", "null"]
        return self.chance.choice(odd) if self.chance.random() < 0.2 else f"key-{self.chance.randrange(100)}"

    def value(self) -> Any:
        encoded = base64.b64encode(self.chance.randbytes(self.chance.randrange(40))).decode()
        odd: list[Any] = [
            encoded.rstrip("="),
            encoded.replace("+", "-").replace("/", "_"),
            "*",
            None,
            7,
            True,
            [],
            {},
            encoded + "=",
        ]
        return self.chance.choice(odd) if self.chance.random() < 0.12 else encoded

    def operation(self) -> Any:
        chance = self.chance
        inner: dict[str, Any] = {"key": self.text(), "value": self.value()}
        if chance.random() < 0.08:
            inner[chance.choice(("expiresAt", "expires_at", "condition", "other"))] = chance.choice((None, "5", 5, {}))
        if chance.random() < 0.05:
            inner.pop(chance.choice(("key", "value")))
        name = "setEntity" if chance.random() < 0.92 else chance.choice(("set_entity", "deleteEntity", "x"))
        found: dict[str, Any] = {name: inner}
        if chance.random() < 0.03:
            found["deleteEntity"] = chance.choice((None, {"key": "a"}))
        return found

    def write(self) -> Any:
        chance = self.chance
        body: dict[str, Any] = {"clientId": self.text()}
        if chance.random() < 0.8:
            usual = str(chance.randrange(1, 10**6))
            odd = [0, 5, 5.0, -1, "", "x", "٣", "0" * 25, "9" * 19, "9" * 20, "1" * 30, None, True]
            body["sequence"] = chance.choice(odd) if chance.random() < 0.2 else usual
        if chance.random() < 0.5:
            usual = base64.b64encode(chance.randbytes(16)).decode()
            odd_keys = ["", "x", usual[:-2], usual[:-4], None, 5, "0b9e5b6e-6a3b-4d0c-9f3e-0c5f0f1e2d3c", "A" * 24]
            body["idempotencyKey"] = chance.choice(odd_keys) if chance.random() < 0.2 else usual
        if chance.random() < 0.95:
            body["operations"] = [self.operation() for _ in range(chance.choice((0, 1, 1, 1, 2, 5)))]
        if chance.random() < 0.1:
            odd_names = ("includeTxProof", "client_id", "x", "include_tx_proof")
            body[chance.choice(odd_names)] = chance.choice((True, False, None, "a"))
        return body

    def raw(self, body: Any) -> bytes:
        separators = self.chance.choice(((", ", ": "), (",", ":"), (" ,", ": "), (",", ":  ")))
        text = json.dumps(body, ensure_ascii=self.chance.random() < 0.5, separators=separators)
        if self.chance.random() < 0.03:
            text = text.replace('"clientId"', '"clientId":"twice","clientId"', 1)
        if self.chance.random() < 0.02:
            text = text[:-1]
        if self.chance.random() < 0.02:
            text += self.chance.choice((" ", "}", "\n", "5"))
        return text.encode()


@pytest.mark.parametrize("seed", range(4))
def test_a_plain_write_has_the_values_of_the_full_parser(seed: int) -> None:
    drawn, plain, usual = Drawn(seed), 0, 0
    for _ in range(CASES):
        raw = drawn.raw(drawn.write())
        limits = drawn.chance.choice(LIMITS)
        found = plain_write(raw, PLACE, limits)
        if found is not None:
            plain += 1
            assert found == prepared(parse_write(raw, NO_FIELDS, MOST), limits), raw
        quick = usual_write(raw, PLACE, limits)
        if quick is not None:
            usual += 1
            assert quick == found, raw
    assert plain > CASES // 10, "hardly any body was plain"
    assert usual > CASES // 20, "hardly any body had the usual form"


@pytest.mark.parametrize("seed", range(4))
def test_plain_bodies_of_many_have_the_values_of_the_full_parser(seed: int) -> None:
    drawn, plain, usual = Drawn(seed + 100), 0, 0
    for _ in range(CASES // 4):
        body: Any = {"transactions": [drawn.write() for _ in range(drawn.chance.choice((0, 1, 1, 2)))]}
        if drawn.chance.random() < 0.05:
            body["other"] = None
        raw = drawn.raw(body)
        limits = drawn.chance.choice(LIMITS)
        found = plain_bulk(raw, MAX_BULK, PLACE, limits)
        if found is not None:
            plain += 1
            assert found == [prepared(draft, limits) for draft in parse_bulk(raw, MOST)], raw
        quick = usual_bulk(raw, MAX_BULK, PLACE, limits)
        if quick is not None:
            usual += 1
            assert quick == found, raw
    assert plain > CASES // 100, "hardly any body was plain"
    assert usual > CASES // 500, "hardly any body had the usual form"


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"5", b"{", b'{"transactions":5}', b'{"transactions":[]}', b'{"transactions":[5]}', b'{"a":1,"a":2}'],
)
def test_a_body_that_is_not_plain_is_left_to_the_full_parser(raw: bytes) -> None:
    assert plain_write(raw, PLACE, LIMITS[0]) is None
    assert plain_bulk(raw, MAX_BULK, PLACE, LIMITS[0]) is None


TRANSACTION = b'{"clientId":"c","sequence":"%d","operations":[{"setEntity":{"key":"%b","value":"eA=="}}]}'


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"eA==", b"eA="),
        lambda text: text.replace(b"eA==", b"e==="),
        lambda text: text.replace(b"eA==", b"===="),
        lambda text: text.replace(b'"c"', b'""'),
        lambda text: text.replace(b'"c"', b'"%b"' % (b"c" * 257)),
        lambda text: text.replace(b'"1"', b'"0"'),
        lambda text: text.replace(b'"1"', b'"%b"' % (b"1" * 20)),
        lambda text: text.replace(b'"sequence":"1",', b""),
        lambda text: text.replace(b'"sequence":"1"', b'"idempotencyKey":"%b=="' % (b"A" * 22)),
        lambda text: text.replace(b"name", b"na\\nme"),
        lambda text: text.replace(b"name", b"na\nme"),
        lambda text: text.replace(b"name", b"na\x7fme"),
        lambda text: text.replace(b"name", "naïve".encode()),
        lambda text: text.replace(b"name", b""),
        lambda text: text.replace(b"name", b"k" * 1_025),
        lambda text: text + b"x",
        lambda text: b" " + text,
    ],
)
def test_a_body_of_another_form_is_not_a_usual_one(change: Callable[[bytes], bytes]) -> None:
    good = TRANSACTION % (1, b"name")
    assert usual_write(good, PLACE, LIMITS[0]) is not None
    assert usual_write(change(good), PLACE, LIMITS[0]) is None
    assert usual_bulk(b'{"transactions":[%b]}' % change(good), 9, PLACE, LIMITS[0]) is None


def test_a_usual_body_of_many_ends_with_its_transactions_and_has_no_more_than_the_limit() -> None:
    good = TRANSACTION % (1, b"name")
    some = usual_bulk(b'{"transactions": [%b, %b,%b]}' % (good, good, good), 3, PLACE, LIMITS[0])
    assert some == [usual_write(good, PLACE, LIMITS[0])] * 3
    for body in (b"[%b,%b,%b,%b]}", b"[%b,%b%b,%b]}", b"[%b,%b,%b,%b]", b"[%b,%b,%b,%b,]}", b"[%b,%b,%b,%b]} "):
        assert (
            usual_bulk(b'{"transactions":' + body % ((good,) * 4), 3 if body.endswith(b"%b]}") else 9, PLACE, LIMITS[0])
            is None
        )


def test_a_request_of_many_refuses_what_is_wrong_with_it_and_marks_what_is_wrong_with_one() -> None:
    good = {"clientId": "a", "sequence": "1", "operations": [{"deleteEntity": {"key": "k"}}]}
    first, second = parse_bulk(json.dumps({"transactions": [good, {"sequence": []}]}).encode(), MOST)
    assert not isinstance(first, Refused)
    assert isinstance(second, Refused)
    assert "transactions[1].sequence" in second.refusal.message
    listed: tuple[Any, ...] = ([], [good] * (MAX_BULK + 1), None, "x")
    for body in [{"transactions": some} for some in listed]:
        with pytest.raises(Refused):
            parse_bulk(json.dumps(body).encode(), MOST)

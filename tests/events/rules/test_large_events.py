"""Events whose values would take much memory are kept as text: the same answers and prints, in every dialect."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from semel.kernel.errors import Refused
from semel.kernel.json import chunks, outline
from semel.kernel.json.outline import is_heavy
from semel.surfaces.events.commands import Candidate, EventItem, EventSubmit
from semel.surfaces.events.limits import EventLimits
from semel.surfaces.events.rules.event_log import _complaints
from semel.surfaces.events.tables import EventRow
from semel.surfaces.events.wire.camel_case_versions import CamelCaseV1, CamelCaseV2
from semel.surfaces.events.wire.dialect import EventDialect, EventPolicy
from semel.surfaces.events.wire.http_messages import parse_body, submission
from semel.surfaces.events.wire.messages import EventIdentity
from semel.surfaces.events.wire.session import EventSession
from semel.surfaces.events.wire.snake_case import SnakeCaseDialect

WHO = EventIdentity("c", lambda _: True, lambda _: True)
TERMS = EventPolicy(EventLimits())
HEAVY = "[" + "[]," * 200_000 + "0]"

PAYLOADS = [
    "1",
    '{"b":1,"a":[1,2.0,{"y":1,"x":[]}],"\\u0061b":null}',
    '[[[[1,2],[3]],{"z":{"a":1,"A":2}}],"\\ud83d\\ude00","é"]',
    '{"type":"inner","payload":{"meta":{"clientId":"x"}}}',
    "[1e400]",
    '"\\ud800"',
    "[9007199254740993]",
    "[100000000000000000000]",
    "[" * 70 + "]" * 70,
    "{" + ",".join(f'"{number:x}":{number}' for number in range(200)) + "}",
]
METAS = [
    '{"clientTs":1}',
    '{"clientTs":2.5,"clientId":"c","a":[1,{"b":2}]}',
    '{"clientId":"other","clientTs":1}',
    "[]",
    "{}",
]


def seed_item(payload: str) -> str:
    event = f'{{"type":"t","payload":{payload},"x":[1,2]}}'
    return f'{{"id":"1","partitions":["b","a","a"],"more":[{payload}],"event":{event}}}'


def camel_item(payload: str, meta: str) -> str:
    names = '"partitions":["p"],"partition":"q","projectId":"p","type":"t","schemaVersion":3,"userId":"u"'
    return f'{{"id":"1",{names},"payload":{payload},"meta":{meta}}}'


def over_http(items: str) -> EventSubmit:
    payload = parse_body(f'{{"events":[{items}],"more":{{"a":[1]}}}}'.encode())
    return submission(payload, WHO, TERMS, b"o")


def over_socket(dialect: EventDialect, version: str) -> Callable[[str], EventSubmit]:
    def read(items: str) -> EventSubmit:
        session = EventSession(TERMS, b"o")
        session.dialect = dialect
        session.activate(WHO)
        head = f'"type":"submit_events","msg_id":"m","msgId":"m","timestamp":1,"{version}":"1.0"'
        request = session.read(f'{{{head},"payload":{{"events":[{items}]}}}}'.encode())
        assert isinstance(request, EventSubmit)
        return request

    return read


READERS: dict[str, tuple[Callable[[str], EventSubmit], bool]] = {
    "HTTP": (over_http, False),
    "seed": (over_socket(SnakeCaseDialect(), "protocol_version"), False),
    "1.3": (over_socket(CamelCaseV1(), "protocolVersion"), True),
    "2.x": (over_socket(CamelCaseV2("p"), "protocolVersion"), True),
}


def told(read: Callable[[str], EventSubmit], items: str) -> Any:
    """What is made of a request, without the event as values."""
    try:
        return [_without_values(item) for item in read(items).items]
    except Refused as refused:
        return refused.refusal.code


def _without_values(item: EventItem) -> Any:
    return item._replace(event=None, text=json.loads(item.text or b"null"))


@pytest.fixture(params=[8, 60, 5_000])
def as_text(request: pytest.FixtureRequest) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(outline, "LIGHT_BYTES", -1)
        monkeypatch.setattr(chunks, "PIECE_BYTES", request.param)

    return patch


@pytest.mark.parametrize("wire", READERS)
@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_a3_an_event_kept_as_text_is_judged_like_its_values(
    wire: str, payload: str, as_text: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, is_camel = READERS[wire]
    sent = [camel_item(payload, meta) for meta in METAS] if is_camel else [seed_item(payload)]
    plain = [told(read, items) for items in sent]
    as_text(monkeypatch)
    assert [told(read, items) for items in sent] == plain


@pytest.mark.parametrize("meta", METAS)
@pytest.mark.parametrize("payload", PAYLOADS[:4])
def test_a3_an_event_kept_as_text_is_shown_like_its_values(
    payload: str, meta: str, as_text: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    event = f'{{"type":"t","payload":{payload},"meta":{meta},"userId":"u","other":[1,2]}}'.encode()
    row = EventRow(7, b"id", b"c", b"", 1_000, b'["p"]', event)
    plain = [json.loads(dialect.event(row)) for dialect in (SnakeCaseDialect(), CamelCaseV1(), CamelCaseV2("p"))]
    as_text(monkeypatch)
    assert [
        json.loads(dialect.event(row)) for dialect in (SnakeCaseDialect(), CamelCaseV1(), CamelCaseV2("p"))
    ] == plain


def test_a3_a_validator_is_shown_the_values_of_an_event_that_is_kept_as_text() -> None:
    item = over_http(seed_item(HEAVY)).items[0]
    assert is_heavy(HEAVY.encode())
    assert item.event is None
    seen: list[Candidate] = []

    def validator(candidate: Candidate, earlier: object) -> None:
        seen.append(candidate)

    assert _complaints(item, "c", [], validator) is None
    assert seen[0].event == {"type": "t", "payload": json.loads(HEAVY), "x": [1, 2]}


def test_a3_the_same_event_is_the_same_whether_it_is_kept_as_text_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = over_http(seed_item(HEAVY)).items[0]
    monkeypatch.setattr(outline, "LIGHT_BYTES", 10**9)
    plain = over_http(seed_item(HEAVY)).items[0]
    assert plain.event is not None
    assert (kept.digest, kept.text) == (plain.digest, plain.text)

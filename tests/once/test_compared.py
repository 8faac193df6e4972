"""What two requests with one key must have in common: equal exactly if they ask the same, however they are written."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from semel.once.compared import MAX_DIGITS, content_fingerprint

JSON = b"application/json"
DEEP = 100_000


def of(body: bytes, kind: bytes = JSON, method: str = "POST", path: bytes = b"/orders", query: bytes = b"") -> bytes:
    """The fingerprint of a request."""
    return content_fingerprint(method, path, query, kind, body)


SAME = [
    (b'{"a":1,"b":2}', b'{ "b" : 2,\n\t"a" : 1 }'),
    (b'{"a":{"x":1,"y":[1,2]}}', b'{"a":{"y":[1,2],"x":1}}'),
    (b"[1.0, 1e2, 0.5]", b"[1, 100, 5e-1]"),
    (b"[0, -0, 0.0]", b"[0.00, 0, -0e7]"),
    (b'"\\u0041\\/"', b'"A/"'),
    (b'"\\ud83d\\ude00"', '"\U0001f600"'.encode()),
    (b"9007199254740993", b"9007199254740993.0"),
    (b"1e400", b"10e399"),
    (b'"\\ud800"', b' "\\uD800"'),
]
OTHER = [
    (b"9007199254740993", b"9007199254740992"),
    (b"0.1", b"0.10000000000000001"),
    (b"1e400", b"1e401"),
    (b"1", b'"1"'),
    (b"1", b"true"),
    (b"0", b"false"),
    (b"null", b'""'),
    (b"[]", b"{}"),
    (b"[1,2]", b"[2,1]"),
    (b'{"a":1}', b'{"a":1,"b":null}'),
    (b'{"a":1,"a":2}', b'{"a":2}'),
    (b'{"a":1,"a":2}', b'{ "a":1,"a":2}'),
    (b'{"a":NaN}', b'{ "a":NaN}'),
    (b"[1,]", b"[1, ]"),
    (b"01", b"1"),
    (b"\xef\xbb\xbf1", b"1"),
    (b'"\xff"', b'"\xfe"'),
    (b"1" * (MAX_DIGITS + 1), b"1" * (MAX_DIGITS + 1) + b" "),
    (b"1e99999999999999999999", b"1e99999999999999999998"),
    (b"[" * DEEP + b"]" * DEEP, b"[" * DEEP + b" " + b"]" * DEEP),
    (b"", b"null"),
    (b'{"\xee\x80\x80number":"1e0"}', b"1"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_json_of_one_value_is_one_question(one: bytes, other: bytes) -> None:
    assert of(one) == of(other)


@pytest.mark.parametrize(("one", "other"), OTHER, ids=range(len(OTHER)))
def test_json_of_two_values_and_what_is_none_are_two_questions(one: bytes, other: bytes) -> None:
    assert of(one) != of(other)
    assert of(one) == of(bytes(one))


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (b"application/json", b"application/json; charset=utf-8", True),
        (b"application/json", b"Application/JSON ;charset=UTF-8", True),
        (b"application/json", b"text/plain", False),
        (b"application/merge-patch+json", b"application/merge-patch+json; v=1", True),
        (b"application/merge-patch+json", b"application/json", False),
        (b"text/plain; charset=utf-8", b"text/plain", True),
        (b"", b"application/json", False),
    ],
)
def test_a_media_type_is_compared_without_its_parameters(one: bytes, other: bytes, is_same: bool) -> None:
    assert (of(b'{"a":1}', one) == of(b'{"a":1}', other)) is is_same


def test_method_path_and_query_are_part_of_the_question() -> None:
    prints = [
        of(b"1"), of(b"1", method="PATCH"), of(b"1", path=b"/order"), of(b"1", query=b"a"), of(b"1", path=b"/orders?a")
    ]  # fmt: skip
    assert len(set(prints)) == len(prints)
    assert of(b"1", method="post") == of(b"1")


@pytest.mark.parametrize("kind", [b"application/octet-stream", b"text/plain", b"application/x-www-form-urlencoded"])
def test_any_other_body_is_compared_by_its_bytes(kind: bytes) -> None:
    assert of(b'{"a":1}', kind) != of(b'{ "a":1}', kind)


numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.decimals(allow_nan=False, allow_infinity=False, places=None).filter(lambda one: len(str(one)) < 200),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


def exact(value: Any) -> Any:
    """A value that equals another one exactly if both are the same JSON."""
    if value is None or isinstance(value, bool | str):
        return type(value).__name__, value
    if isinstance(value, int | Decimal):
        return "number", Fraction(value)
    if isinstance(value, list):
        return "list", [exact(one) for one in value]
    return "object", {name: exact(one) for name, one in value.items()}


def written(value: Any, draw: Any) -> str:
    """One of the spellings of a value."""
    space: str = draw(st.sampled_from(["", " ", "\n", "\t\r\n"]))
    if isinstance(value, str):
        return space + json.dumps(value, ensure_ascii=draw(st.booleans()))
    if isinstance(value, bool) or value is None:
        return json.dumps(value) + space
    if isinstance(value, int | Decimal):
        return space + number(Decimal(value), draw(st.integers(0, 3)))
    if isinstance(value, list):
        return f"[{','.join(written(one, draw) for one in value)}{space}]"
    members = draw(st.permutations(list(value.items())))
    return "{" + ",".join(f"{space}{json.dumps(name)}{space}:{written(one, draw)}" for name, one in members) + "}"


def number(value: Decimal, zeros: int) -> str:
    """A number with an exponent and more zeros than it needs."""
    sign, digits, exponent = value.as_tuple()
    shown = "".join(map(str, digits)).lstrip("0") or "0"
    return f"{'-' if sign else ''}{shown}{'.' + '0' * zeros if zeros else ''}e{exponent}"


@settings(max_examples=300, database=None, derandomize=True)
@given(values, values, st.data())
def test_fingerprints_are_equal_exactly_if_the_values_are(one: Any, other: Any, data: st.DataObject) -> None:
    texts = [written(value, data.draw).encode() for value in (one, one, other)]
    first, again, beside = (of(text) for text in texts)
    assert first == again, texts
    assert (first == beside) == (exact(one) == exact(other)), texts


@settings(max_examples=100, database=None, derandomize=True)
@given(values, st.data())
def test_no_bytes_pass_for_the_canonical_form_of_a_value(value: Any, data: st.DataObject) -> None:
    text = written(value, data.draw).encode()
    seen = set()
    for canonical in canonical_forms(text):
        assert of(canonical) != of(text)
        seen.add(of(canonical))
    assert seen


def canonical_forms(text: bytes) -> list[bytes]:
    """What is hashed for a body, as somebody who read the code would send it."""
    found: list[bytes] = []
    genuine = hashlib.sha256

    class Listening:
        """Keeps what is hashed."""

        def __init__(self) -> None:
            self._hash = genuine()

        def update(self, data: bytes) -> None:
            """Keep it."""
            found.append(data)
            self._hash.update(data)

        def digest(self) -> bytes:
            """As it is."""
            return self._hash.digest()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("semel.once.exchange.hashlib.sha256", Listening)
        of(text)
    return [found[-1]]


FORM = b"multipart/form-data; boundary="
Part = tuple[str, str, bytes]
names = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=4)
parts = st.lists(st.tuples(names, names, st.binary(max_size=12)), min_size=1, max_size=3)


def form(fields: list[Part], boundary: str, end: bytes = b"\r\n") -> bytes:
    """A body in parts."""
    found = b""
    for name, file, content in fields:
        head = f'Content-Disposition: form-data; name="{name}"; filename="{file}"\r\nContent-Type: text/plain'
        found += f"--{boundary}\r\n{head}\r\n\r\n".encode() + content + b"\r\n"
    return found + f"--{boundary}--".encode() + end


@settings(max_examples=150, database=None, derandomize=True)
@given(parts, parts)
@example([("a", "f", b"\r\n--two")], [("a", "f", b"\r\n--one")])
@example([("a", "f", b"x\r\n")], [("a", "f", b"x")])
@example([("a", "f", b""), ("b", "f", b"")], [("b", "f", b""), ("a", "f", b"")])
def test_forms_are_equal_exactly_if_their_parts_are(one: list[Part], other: list[Part]) -> None:
    first = of(form(one, "one-b8f1"), FORM + b"one-b8f1")
    again = of(form(one, "two-77c0", b""), FORM + b'"two-77c0"')
    assert first == again
    assert (first == of(form(other, "one-b8f1"), FORM + b"one-b8f1")) == (one == other)


def test_the_head_of_a_part_is_compared_by_its_fields() -> None:
    one = b"--b\r\nContent-Type: text/plain\r\nX-A: 1\r\n\r\nx\r\n--b--"
    assert of(one, FORM + b"b") == of(
        one.replace(b"Content-Type: text/plain\r\nX-A: 1", b"x-a:1\r\ncontent-type:  text/plain"), FORM + b"b"
    )
    assert of(one, FORM + b"b") != of(one.replace(b"X-A: 1", b"X-A: 2"), FORM + b"b")
    assert of(one.replace(b"X-A: 1", b"X-A: 1\nx-b:2"), FORM + b"b") != of(
        one.replace(b"X-A: 1", b"X-A: 1\r\nX-B: 2"), FORM + b"b"
    )


@pytest.mark.parametrize(
    "broken",
    [b"", b"--b", b"--b\r\nno blank line\r\n--b--", b"preamble\r\n--b\r\n\r\nx\r\n--b--", b"--b\r\n\r\nx\r\n--bb--"],
)
def test_a_form_that_is_malformed_is_compared_by_its_bytes(broken: bytes) -> None:
    assert of(broken, FORM + b"b") == of(broken, FORM + b"b; charset=utf-8")
    assert of(broken, FORM + b"b") != of(broken + b" ", FORM + b"b")
    assert of(broken, b"multipart/form-data") != of(broken + b" ", b"multipart/form-data")

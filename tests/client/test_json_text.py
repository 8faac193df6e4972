"""JSON texts are split without a change: the messages of a page, and the members of an object."""

from __future__ import annotations

import pytest

from semel.client.errors import BadAnswerError
from semel.client.json_text import elements, members
from semel.client.streams.values import ContentPage


def page(content: bytes) -> ContentPage:
    return ContentPage(content, "application/json", "1", is_up_to_date=True, is_closed=False)


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (b"[]", []),
        (b" [ ] ", []),
        (b"[1]", ["1"]),
        (b'[1,[2, 3],"a,]\\n",{"x":\r\n[]}]', ["1", "[2, 3]", '"a,]\\n"', '{"x":  []}']),
        (b"[" + b"9" * 5_000 + b",1e999]", ["9" * 5_000, "1e999"]),
        (b"[" + b"[" * 64 + b"]" * 64 + b"]", ["[" * 64 + "]" * 64]),
        (b'["\\ud800"]', ['"\\ud800"']),
    ],
)
def test_messages_keep_their_text(array: bytes, texts: list[str]) -> None:
    assert page(array).texts() == texts


@pytest.mark.parametrize("broken", [b" ", b"{}", b"[1", b"[1,", b"[x]", b"\xff[]"])
def test_what_is_not_an_array_is_an_error(broken: bytes) -> None:
    with pytest.raises(BadAnswerError, match="not a JSON array"):
        page(broken).texts()


def test_members_keep_their_text() -> None:
    text = ' {"a" :1.0e0,\n"b": {"c":[1 ,2], "}": "]"} , "\\u0061a":"x\\"y"\t} '
    assert members(text) == {"a": "1.0e0", "b": '{"c":[1 ,2], "}": "]"}', "aa": '"x\\"y"'}
    assert members("{}") == {}
    assert members('{"n": ' + "9" * 5_000 + "}") == {"n": "9" * 5_000}


@pytest.mark.parametrize("broken", ["", "[]", "{", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1 "b":2}', "{a:1}"])
def test_what_is_not_an_object_is_an_error(broken: str) -> None:
    with pytest.raises(ValueError, match="xpect"):
        members(broken)


def test_a_page_without_content_has_no_messages() -> None:
    assert page(b"").texts() == []
    with pytest.raises(ValueError, match="expected"):
        list(elements(""))

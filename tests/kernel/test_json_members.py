"""The reader of JSON members: what each type takes, what is absent, how a refusal names a member, known names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from semel.kernel.json.large import LargeJson
from semel.kernel.json.members import (
    MemberNames,
    MemberReader,
    any_string,
    is_large_list,
    is_utf8,
    matching,
    members_of,
    read_body,
    some_string,
    string_of,
    unmarked,
)
from semel.kernel.json.parse import parse_marked
from semel.kernel.json.text import JsonError

HALF = "\ud800"


class BrokenRuleError(Exception):
    """A refusal of a surface."""


def broken(path: str, rule: str) -> BrokenRuleError:
    return BrokenRuleError(f"{path} {rule}")


def reader(members: dict[str, Any], base: str = "") -> MemberReader[BrokenRuleError]:
    return MemberReader(members, broken, base)


def refused(words: str) -> Any:
    return pytest.raises(BrokenRuleError, match=f"^{re.escape(words)}$")


def ignore(count: int) -> None:
    """Any number will do."""


def large(text: str) -> Any:
    """A value that stays text, as a part of a large body does."""
    found = read_body(text.replace("_", " " * 3_000_000).encode())
    assert isinstance(found, LargeJson)
    return found


def test_an_absent_member_and_null_are_the_same_where_a_member_is_optional() -> None:
    for members in ({}, {"a": None}):
        read = reader(members)
        assert read.optional("a", any_string, "must be a string") is None
        assert read.string("a", 1, 2) is None
        assert read.integer("a", 1, 2) is None
        assert read.flag("a") is None
        assert list(read.elements("a", "must be a list", ignore)) == []


def test_a_required_member_that_is_absent_breaks_its_own_rule() -> None:
    for members in ({}, {"a": None}):
        with refused("a must be a string"):
            reader(members).required("a", any_string, "must be a string")
        with refused("a must be an object"):
            reader(members).nested("a")


def test_a_refusal_names_the_member_by_its_path() -> None:
    inner = reader({"n": "x"}, "jobs[3].client")
    assert inner.path("n") == "jobs[3].client.n"
    with refused("jobs[3].client.n must be a whole number from 0 to 9"):
        inner.integer("n", 0, 9)


@pytest.mark.parametrize("given", [0, 7, 9])
def test_an_integer_in_its_range_is_taken(given: int) -> None:
    assert reader({"n": given}).integer("n", 0, 9) == given


@pytest.mark.parametrize("given", [-1, 10, 10**30, 7.0, True, False, "7", [], {}], ids=repr)
def test_an_integer_is_written_as_one_and_lies_in_its_range(given: Any) -> None:
    with refused("n must be a whole number from 0 to 9"):
        reader({"n": given}).integer("n", 0, 9)
    with refused("n is 0 to 9"):
        reader({"n": given}).integer("n", 0, 9, "is {least} to {most}")


@pytest.mark.parametrize("given", ["", "abc", 7, True, [], {}], ids=repr)
def test_a_string_has_a_length(given: Any) -> None:
    with refused("s must be a string of 1 to 2 characters"):
        reader({"s": given}).string("s", 1, 2)
    assert string_of(1, 2)(given) is None


@pytest.mark.parametrize("given", ["a", "ab", HALF], ids=ascii)
def test_a_string_of_its_length_is_taken_whatever_its_characters(given: str) -> None:
    assert reader({"s": given}).string("s", 1, 2) == string_of(1, 2)(given) == given


def test_half_of_a_surrogate_pair_is_refused_where_utf8_is_needed() -> None:
    reader({}).check_utf8("s", "a\u00e9\U0001f600")
    assert not is_utf8(HALF)
    with refused("s holds half of a surrogate pair"):
        reader({}).check_utf8("s", f"a{HALF}")


@pytest.mark.parametrize("given", [0, 1, "true", [], {}], ids=repr)
def test_a_flag_is_true_or_false(given: Any) -> None:
    assert (reader({"f": True}).flag("f"), reader({"f": False}).flag("f")) == (True, False)
    with refused("f must be true or false"):
        reader({"f": given}).flag("f")


def test_parsers_of_strings() -> None:
    assert (any_string(""), any_string(7)) == ("", None)
    assert (some_string("a"), some_string(""), some_string(7)) == ("a", None, None)
    digits = matching(re.compile("[0-9]+"))
    assert (digits("12"), digits("12\n"), digits(12), digits(None)) == ("12", None, None, None)


def test_a_value_that_a_parser_makes_and_that_is_false_is_no_refusal() -> None:
    assert reader({"n": "0"}).required("n", int, "must be a number") == 0


@pytest.mark.parametrize("given", ["x", 7, {}, True], ids=repr)
def test_a_list_is_a_list(given: Any) -> None:
    with refused("l must be a list"):
        reader({"l": given}).elements("l", "must be a list", ignore)


def test_the_elements_of_a_list_are_counted_before_they_are_read() -> None:
    counts: list[int] = []
    assert list(reader({"l": [1, 2, 3]}).elements("l", "", counts.append)) == [1, 2, 3]
    assert counts == [3]


def test_a_large_list_is_counted_as_it_is_read() -> None:
    value = large("[1,_2,3]")
    counts: list[int] = []
    assert is_large_list(value)
    elements = iter(reader({"l": value}).elements("l", "", counts.append))
    assert (next(elements), counts) == (1, [1])
    assert (list(elements), counts) == ([2, 3], [1, 2, 3])
    with refused("l must be a list"):
        reader({"l": large('{"a":_1}')}).elements("l", "must be a list", ignore)


def test_the_members_of_an_object_large_or_not() -> None:
    assert members_of({"a": 1}) == {"a": 1}
    assert members_of(large('{"a":1,_"b":2}')) == {"a": 1, "b": 2}
    assert members_of(large('{"a":1,_"b":2}'), "b".__contains__) == {"b": 2}
    others: list[object] = [None, 7, "x", [], large("[1,_2]")]
    for value in others:
        assert members_of(value) is None


def test_a_body_that_is_nested_too_deeply_is_refused() -> None:
    text = "[" * 4 + "_" + "]" * 4
    assert is_large_list(large(text))
    with pytest.raises(JsonError):
        read_body(text.replace("_", " " * 3_000_000).encode(), levels=3)


def test_a_value_that_cannot_be_taken_is_raised() -> None:
    assert unmarked([1, {"a": "b"}]) == [1, {"a": "b"}]
    value, _ = parse_marked(b'{"a":[1e999]}', 64)
    with pytest.raises(JsonError):
        unmarked(value)


KNOWN = MemberNames(("clientId", "key"), {"client_id": "clientId", "key": "key"})


def unknown(path: str, name: str) -> Exception:
    return BrokenRuleError(f"{path} has no {name}")


def repeated(path: str, name: str) -> Exception:
    return BrokenRuleError(f"{path} has {name} twice")


def test_known_members_are_given_under_their_proper_names() -> None:
    same = {"clientId": 1}
    assert KNOWN.known(same, "body", unknown, repeated) is same
    assert KNOWN.known({"client_id": 1, "key": 2}, "body", unknown, repeated) == {"clientId": 1, "key": 2}


def test_an_unknown_name_and_a_second_spelling_are_refused() -> None:
    with refused("body has no actor"):
        KNOWN.known({"key": 1, "actor": 2, "other": 3}, "body", unknown, repeated)
    with refused("body has clientId twice"):
        KNOWN.known({"clientId": 1, "client_id": 2}, "body", unknown, repeated)

"""The identity of a delta: the published ids, and what a text of Python's makes of every odd value.

The ids were made by the JavaScript that LakeSync clients run. Some have two spellings on the wire and one identity.
"""

from __future__ import annotations

import json
from hashlib import sha256
from itertools import permutations
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from semel.kernel.hashes import columns_text, delta_id, json_text, plain_column
from semel.kernel.json.canonical import JsonError, JsonKind, parse

USUAL: dict[str, Any] = {"clientId": "client-a", "hlc": "115998720000000000", "table": "todos", "rowId": "row-1"}
LITERALS = (
    '[{"column":"a","value":null},{"column":"b","value":true},{"column":"c","value":false},'
    '{"column":"d","value":-1},{"column":"e","value":42}]'
)
NUMBERS = (
    '[{"column":"a","value":1e21},{"column":"b","value":1e-7},{"column":"c","value":0.1},'
    '{"column":"d","value":123456789012345680000},{"column":"e","value":9007199254740993},'
    '{"column":"f","value":5e-324},{"column":"g","value":1.7976931348623157e308},{"column":"h","value":1e2},'
    '{"column":"i","value":100000000000000000000},{"column":"j","value":0.000001}]'
)


def column(name: str, value: str) -> str:
    return f'[{{"column":"{name}","value":{value}}}]'


A_1 = column("a", "1")
VECTORS: list[tuple[str, str, dict[str, str], str]] = [
    ("V01", "[]", {}, "dd09bac6050d0f6d61f3da7e46adcefcff4037df72237f8693746c5e51b5e32f"),
    ("V02", column("title", '"Buy milk"'), {}, "c83a248d2431f229a3289cf8a2e5923396df8c9ea1b1ee585c5bd5f21d23a331"),
    (
        "V03",
        '[{"column":"title","value":"Buy milk"},{"column":"completed","value":0}]',
        {},
        "8b05f2339265bc99d594edff5a6f0a36bf705cf788a6a8e3944e863d580dea1b",
    ),
    (
        "V04",
        '[{"column":"completed","value":0},{"column":"title","value":"Buy milk"}]',
        {},
        "340c7071c8debe279dd9042648576276ef2d1f8c80d1bf85a15ac6f4f196af58",
    ),
    (
        "V05",
        LITERALS,
        {},
        "ebd9a08d1957bdf5461341cf27649d863fbfa18b7df7eea28293bf106e4f5bce",
    ),
    ("V06", column("n", "0"), {}, "1238ddcafcc32171cabf8ad10b3e8b29a1e3cb29cda0b374c77cdc6d316fa5d4"),
    ("V06 -0", column("n", "-0"), {}, "1238ddcafcc32171cabf8ad10b3e8b29a1e3cb29cda0b374c77cdc6d316fa5d4"),
    ("V06 -0.0", column("n", "-0.0"), {}, "1238ddcafcc32171cabf8ad10b3e8b29a1e3cb29cda0b374c77cdc6d316fa5d4"),
    ("V07", column("n", "null"), {}, "db09ca313dc48e3d122f67baa5ee99698027896f9f806e5f79de62fe3ae8e62e"),
    ("V08", NUMBERS, {}, "791803962a35c06a32f7be4b54194c0f6a681abf0ceb022af3be8ef2294fdb85"),
    (
        "V09",
        column("meta", '{"":"empty","10":"x","9":"y","a":{"c":null,"d":[3,1,2]},"b":1}'),
        {},
        "9bab8eeca777af54cdd48b038f8e7a6ebfac2470e347988309134a27ea38c1ec",
    ),
    (
        "V09 unsorted",
        column("meta", '{"b":1,"a":{"d":[3,1,2],"c":null},"9":"y","10":"x","":"empty"}'),
        {},
        "9bab8eeca777af54cdd48b038f8e7a6ebfac2470e347988309134a27ea38c1ec",
    ),
    (
        "V10",
        column("meta", '{"b":[null,1],"c":{}}'),
        {},
        "1fe806a6cd92d3c0488f838cb5700825245b1eb4d471bdb738b15fe81fcc0219",
    ),
    (
        "V11",
        column("title", '"naïve café — 日本語 🎉"'),
        {},
        "d7f3a482bf7a27a000fe098d2d22ae3ba2792e99ac9354995e16f4e8dfab43c6",
    ),
    (
        "V12",
        column("title", r'"q\" b\\ / \b\f\n\r\t \u0000\u001f\u007f \u2028\u2029 <>&' + "'\""),
        {},
        "3a8eeaaa04cffb24e10d250a9728ecd998c79c96c7a85f96f08985e90db0a3c2",
    ),
    (
        "V13",
        column("title", r'"a\ud800b\udc00c"'),
        {},
        "e638e92945bcb68227db73d3c763c7a1186ff6a8d137fadbdb967607fdc1e685",
    ),
    (
        "V14",
        column("meta", r'{"\uff5e":2,"\ue000":3,"\ud83c\udf89":1,"é":5,"z":4,"Z":6}'),
        {},
        "4285e580b4cf3058e42ab6de6157d18d65fa19e5455c9f42e84cef1b3655ad3a",
    ),
    (
        "V15",
        column("at", '"1970-01-01T00:00:00.000Z"'),
        {},
        "2440b0070f97b0fdf4e55624a60e1b96e0bd719791bfa7e404cf5eba0cf81841",
    ),
    ("V16", column("tags", '["b","a"]'), {}, "5781c271b055c2672d87290bc9c7c16c6c44e3b16eff88e313cd00ebb531ed1e"),
    (
        "V17",
        column("meta", '{"hlc":"","lastHlc":"123"}'),
        {},
        "00412ce6265b3f4871ec5468d7333a1b60885a323607af3c79df0feee19bfcc6",
    ),
    ("V18", A_1, {"hlc": "0"}, "55d41fe55777580d596052112db0afe8b696162da87dcacaef6b3ca824c1a87b"),
    (
        "V19",
        A_1,
        {"hlc": "18446744073709551615"},
        "1a3b2859071fc34c530254b4b7a838a9ec0c014b7907e8307f4f0e3455aac8a8",
    ),
    ("V20", A_1, {"hlc": "115998720000065535"}, "9125a533f60cab763e59285a497cf2602b15cee5bfe6f6d1103c0148933e8c01"),
    (
        "V21",
        column("title", '"x"'),
        {"clientId": "клиент-🎉", "rowId": "行/1"},
        "5a6daf68b98145be1e47538a9bd8d6a446927e4682ee1d09d70cd7f9c64b8716",
    ),
    ("V22", column("t", r'"\u00e9"'), {}, "d77b4197a760b707d9c2f60338c927b5e6ec913c3553a9dd3531c8e9974a2b12"),
    ("V23", column("t", r'"e\u0301"'), {}, "cc6bd5c3fa28d87cbcb3d2dd355e6daafcc574a43c588273f89f869650bc5f12"),
    (
        "V24",
        '[{"column":"a","value":{}},{"column":"b","value":[]}]',
        {},
        "89d7e0cf31c1c4a0e1d1ed54a3e095789ca842a3e1e1a0c8d6c1b2724a80ce30",
    ),
    ("V25", '[{"column":"a"}]', {}, "b044b02723848b253202c08e02a4fccd0d7c63081d0bd72a9e0bc231264d42c6"),
    ("V26", column("a", "null"), {}, "302945222ba56c9a4821a60806a3787250c59e3e2f1fc5c3cfeee47874672628"),
    (
        "V27",
        '[{"value":1,"type":"number","column":"a"}]',
        {},
        "2475f17f69abca0ae7cd942c250baf24d2d4e65138550983394df105c6c7f913",
    ),
    (
        "V28",
        column("meta", '{"constructor":2,"__proto__":1}'),
        {},
        "bfae759f085c5323426fa839443fd354683603d07bb4eefb23383eba50aad24c",
    ),
]


def identity(columns: list[Any], **fields: str) -> str:
    """As the parser of a push makes it, from a parsed body."""
    given = USUAL | fields
    texts = [
        plain_column(one["column"], json_text(one["value"])) if one.keys() == {"column", "value"} else json_text(one)
        for one in columns
    ]
    hlc, table = int(given["hlc"]), given["table"]
    return delta_id(json_text(given["clientId"]), columns_text(texts), hlc, json_text(given["rowId"]), table).hex()


@pytest.mark.parametrize(
    ("columns", "fields", "expected"), [vector[1:] for vector in VECTORS], ids=[vector[0] for vector in VECTORS]
)
def test_the_published_ids(columns: str, fields: dict[str, str], expected: str) -> None:
    parsed = parse(columns.encode())
    assert isinstance(parsed, list)
    assert identity(parsed, **fields) == expected


def test_there_are_28_of_them() -> None:
    assert {name.split()[0] for name, *_ in VECTORS} == {f"V{number:02}" for number in range(1, 29)}


def test_the_whole_text_that_is_hashed() -> None:
    text = (
        '{"clientId":"client-a","columns":[{"column":"title","value":"Buy milk"}],'
        '"hlc":"115998720000000000","rowId":"row-1","table":"todos"}'
    )
    assert identity([{"column": "title", "value": "Buy milk"}]) == sha256(text.encode()).hexdigest()


TEXTS: list[tuple[str, Any, str]] = [
    ("nothing", None, "null"),
    ("true", True, "true"),
    ("false", False, "false"),
    ("one", 1, "1"),
    ("one as a double", 1.0, "1"),
    ("zero", 0, "0"),
    ("minus zero", -0.0, "0"),
    ("last exact integer", 2**53, "9007199254740992"),
    ("first rounded integer", 2**53 + 1, "9007199254740992"),
    ("rounded the other way", 2**53 + 3, "9007199254740996"),
    ("last exact negative one", -(2**53), "-9007199254740992"),
    ("first rounded negative one", -(2**53) - 1, "-9007199254740992"),
    ("last without an exponent", 10**20, "100000000000000000000"),
    ("first with an exponent", 10**21, "1e+21"),
    ("just below it", 999999999999999934463.0, "999999999999999900000"),
    ("small without an exponent", 1e-6, "0.000001"),
    ("small with an exponent", 1e-7, "1e-7"),
    ("small with digits", 1.5e-9, "1.5e-9"),
    ("least", 5e-324, "5e-324"),
    ("greatest", 1.7976931348623157e308, "1.7976931348623157e+308"),
    ("thirds", 1 / 3, "0.3333333333333333"),
    ("empty text", "", '""'),
    ("plain text", "a b~!", '"a b~!"'),
    ("quote", 'a"b', r'"a\"b"'),
    ("backslash", "a\\b", r'"a\\b"'),
    ("slash stays", "a/b", '"a/b"'),
    ("short escapes", "\b\t\n\f\r", r'"\b\t\n\f\r"'),
    ("long escapes", "\x00\x0b\x1f", r'"\u0000\u000b\u001f"'),
    ("delete is no escape", "\x7f", '"\x7f"'),
    ("separators are no escapes", "\u2028\u2029", '"\u2028\u2029"'),
    ("byte order mark", "\ufeff", '"\ufeff"'),
    ("not composed", "e\u0301", '"e\u0301"'),
    ("beyond the basic plane", "\U0001f389", '"\U0001f389"'),
    ("high half", "\ud800", r'"\ud800"'),
    ("low half", "\udfff", r'"\udfff"'),
    ("halves in the wrong order", "\udc00\ud800", r'"\udc00\ud800"'),
    ("halves that belong together", "\ud83c\udf89", '"\U0001f389"'),
    ("a final newline", "a\n", r'"a\n"'),
    ("empty list", [], "[]"),
    ("empty object", {}, "{}"),
    ("a half in a name", {"\ud800": 1, "a": 2}, r'{"a":2,"\ud800":1}'),
    ("names by code units", {"\uff5e": 1, "\U0001f389": 2, "\ue000": 3}, '{"\U0001f389":2,"\ue000":3,"\uff5e":1}'),
    ("names that look like numbers", {"9": 1, "10": 2, "": 3}, '{"":3,"10":2,"9":1}'),
    ("inside", [{"b": [-0.0, 10**21], "a": None}], '[{"a":null,"b":[0,1e+21]}]'),
]


@pytest.mark.parametrize(("value", "text"), [row[1:] for row in TEXTS], ids=[row[0] for row in TEXTS])
def test_the_text_of_a_value(value: Any, text: str) -> None:
    assert json_text(value) == text
    assert json_text([value]) == f"[{text}]"
    text.encode()  # whatever it is, it can be stored and sent


@pytest.mark.parametrize("value", [10**400, -(10**400), [10**309]], ids=["too large", "too small", "inside"])
def test_a_number_beyond_every_double_is_refused_and_never_hashed_as_something_else(value: Any) -> None:
    with pytest.raises(JsonError) as refused:
        json_text(value)
    assert refused.value.kind is JsonKind.OVERFLOW


def test_the_order_of_columns_counts_and_that_of_their_members_does_not() -> None:
    one, other = {"column": "a", "value": 1, "z": 0}, {"z": 0, "value": 1, "column": "a"}
    assert identity([one]) == identity([other])
    columns = [{"column": name, "value": 1} for name in "abc"]
    assert len({identity(list(order)) for order in permutations(columns)}) == 6


COLUMNS: list[dict[str, Any]] = [
    {"column": "a"},
    {"column": "a", "value": None},
    {"column": "a", "value": None, "type": None},
    {"column": "a", "Value": None},
    {"column": "a", "type": "number"},
    {"column": "a", "value": {}},
    {"column": "a", "value": "null"},
]


def test_every_member_of_a_column_is_hashed_and_an_absent_value_is_not_null() -> None:
    assert len({identity([one]) for one in COLUMNS}) == len(COLUMNS)


def test_every_field_of_the_identity_counts() -> None:
    changes = [{}, {"clientId": "b"}, {"hlc": "1"}, {"table": "t"}, {"rowId": "r"}]
    assert len({identity([], **change) for change in changes}) == len(changes)


def test_no_two_fields_can_be_confused() -> None:
    """Quotes and brackets inside a text stay inside it."""
    row = '"},{"'
    assert identity([], rowId=row, clientId="x") != identity([], rowId="x", clientId=row)
    assert identity([], clientId='a","columns":[]') != identity([], clientId="a")


# -- An independent printer as the judge -------------------------------------------------------------------------------

TEXT = st.text(max_size=10) | st.text('\\"/:[]{},.0e1u\x00\x1f\x7f\u2028\ud7ff\ue000\uffff\U0001f600', max_size=8)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=10
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True)
SENT = st.fixed_dictionaries({"column": NAMES}, optional={"value": VALUES, "type": VALUES})


@given(st.lists(SENT, max_size=4), TEXT, TEXT, NAMES, st.integers(0, 2**64 - 1))
def test_the_id_is_the_hash_of_the_canonical_text_of_five_fields(
    columns: list[dict[str, Any]], client: str, row: str, table: str, hlc: int
) -> None:
    fields = {"clientId": client, "rowId": row, "table": table, "hlc": str(hlc)}
    expected = sha256(rfc8785.dumps(fields | {"columns": columns})).hexdigest()
    assert identity(columns, **fields) == expected


@given(VALUES, st.booleans())
def test_however_it_was_spelled_on_the_wire(value: Any, is_ascii: bool) -> None:
    raw = json.dumps(value, ensure_ascii=is_ascii, indent=1).encode()
    assert json_text(parse(raw)) == rfc8785.dumps(value).decode()


@given(st.text(st.characters(exclude_categories=()), max_size=8))
def test_any_text_of_javascript_is_printed_as_javascript_prints_it(text: str) -> None:
    """Which escapes each half of a pair that stands alone, and nothing else beyond ASCII."""
    units = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    expected = "".join(
        f"\\u{ord(one):04x}" if "\ud800" <= one <= "\udfff" else json.dumps(one, ensure_ascii=False)[1:-1]
        for one in units
    )
    assert json_text(text) == f'"{expected}"'

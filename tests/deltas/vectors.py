"""The identity of a delta and the clock's numbers, written a second time: the server is held against them.

Nothing here imports the code under test. The tables are the published vectors.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple

Message = dict[str, Any]
Columns = Sequence[Mapping[str, Any]]

CLIENT = "client-a"
HLC = "115998720000000000"
"""A moment in February 2026: long ago, and nothing is too old."""
TABLE = "todos"
ROW = "row-1"
LARGEST = 2**64 - 1
DRIFT_MS = 5_000

_SHORT = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


# -- the canonical text ----------------------------------------------------------------------------------------------


def canonical(value: Any) -> str:
    """The text that is hashed."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int | float):
        return number_text(float(value))
    if isinstance(value, Mapping):
        keys = sorted(value, key=lambda key: _joined(key).encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_string(key)}:{canonical(value[key])}" for key in keys) + "}"
    return "[" + ",".join(canonical(one) for one in value) + "]"


def number_text(number: float) -> str:
    """A double as ECMAScript prints it."""
    if number == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    point = len(text) + exponent
    if 0 < point <= 21:
        body = text + "0" * exponent if exponent >= 0 else f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        body = "0." + "0" * -point + text
    else:
        fraction = f".{text[1:]}" if len(text) > 1 else ""
        body = f"{text[0]}{fraction}e{point - 1:+d}"
    return "-" * sign + body


def _joined(text: str) -> str:
    """Halves of a pair that stand side by side are one character."""
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def _string(text: str) -> str:
    if text.isascii():  # by far the quickest way, and the rules are the same here
        return json.dumps(text, ensure_ascii=False)
    return '"' + "".join(_character(one) for one in _joined(text)) + '"'


def _character(one: str) -> str:
    code = ord(one)
    if code in _SHORT:
        return _SHORT[code]
    return f"\\u{code:04x}" if code < 0x20 or 0xD800 <= code <= 0xDFFF else one


def delta_id(delta: Mapping[str, Any]) -> str:
    """The identity of a delta by its content."""
    hashed = {name: delta[name] for name in ("clientId", "columns", "hlc", "rowId", "table")}
    return hashlib.sha256(canonical(hashed).encode()).hexdigest()


# -- deltas and stamps -----------------------------------------------------------------------------------------------


def columns(**values: Any) -> list[Message]:
    """Columns in the order given."""
    return [{"column": name, "value": value} for name, value in values.items()]


def delta(
    op: str = "UPDATE",
    cells: Columns = (),
    *,
    row: str = ROW,
    client: str = CLIENT,
    hlc: int | str = HLC,
    table: str = TABLE,
    **others: Any,
) -> Message:
    """A delta with its right id, as a client sends it."""
    made: Message = {"op": op, "table": table, "rowId": row, "clientId": client, "columns": list(cells)}
    made["hlc"] = str(hlc)
    return made | {"deltaId": delta_id(made)} | others


def changed(made: Mapping[str, Any], **fields: Any) -> Message:
    """The same delta with other fields and the id that it has by them."""
    other = dict(made) | fields
    return other | {"deltaId": delta_id(other)}


def forged(made: Mapping[str, Any]) -> Message:
    """The same delta under an id that differs in its last digit."""
    true = made["deltaId"]
    return dict(made) | {"deltaId": true[:-1] + ("0" if true[-1] != "0" else "1")}


def stamp(wall_ms: int, counter: int = 0) -> int:
    """A moment of the clock as a number."""
    return wall_ms << 16 | counter


def wall_of(hlc: int | str) -> int:
    """The milliseconds in a stamp."""
    return int(hlc) >> 16


def now_ms() -> int:
    """The clock that this machine, and so the server under test, has."""
    return time.time_ns() // 1_000_000


# -- the published vectors -------------------------------------------------------------------------------------------


class Vector(NamedTuple):
    """A delta's content and the id that it must have."""

    name: str
    columns: list[Message]
    id: str
    fields: Mapping[str, Any] = MappingProxyType({})

    def delta(self, op: str = "UPDATE") -> Message:
        """The delta under its published id."""
        made = delta(op, self.columns) | dict(self.fields)
        return made | {"deltaId": self.id}


VECTORS = (
    Vector("V01", [], "dd09bac6050d0f6d61f3da7e46adcefcff4037df72237f8693746c5e51b5e32f"),
    Vector("V02", columns(title="Buy milk"), "c83a248d2431f229a3289cf8a2e5923396df8c9ea1b1ee585c5bd5f21d23a331"),
    Vector(
        "V03",
        columns(title="Buy milk", completed=0),
        "8b05f2339265bc99d594edff5a6f0a36bf705cf788a6a8e3944e863d580dea1b",
    ),
    Vector(
        "V04",
        columns(completed=0, title="Buy milk"),
        "340c7071c8debe279dd9042648576276ef2d1f8c80d1bf85a15ac6f4f196af58",
    ),
    Vector(
        "V05",
        columns(a=None, b=True, c=False, d=-1, e=42),
        "ebd9a08d1957bdf5461341cf27649d863fbfa18b7df7eea28293bf106e4f5bce",
    ),
    Vector("V06", columns(n=0), "1238ddcafcc32171cabf8ad10b3e8b29a1e3cb29cda0b374c77cdc6d316fa5d4"),
    Vector("V07", columns(n=None), "db09ca313dc48e3d122f67baa5ee99698027896f9f806e5f79de62fe3ae8e62e"),
    Vector(
        "V08",
        columns(
            a=1e21,
            b=1e-7,
            c=0.1,
            d=123456789012345680000,
            e=9007199254740993,
            f=5e-324,
            g=1.7976931348623157e308,
            h=100,
            i=100000000000000000000,
            j=0.000001,
        ),
        "791803962a35c06a32f7be4b54194c0f6a681abf0ceb022af3be8ef2294fdb85",
    ),
    Vector(
        "V09",
        columns(meta={"b": 1, "a": {"d": [3, 1, 2], "c": None}, "10": "x", "9": "y", "": "empty"}),
        "9bab8eeca777af54cdd48b038f8e7a6ebfac2470e347988309134a27ea38c1ec",
    ),
    Vector(
        "V10",
        columns(meta={"b": [None, 1], "c": {}}),
        "1fe806a6cd92d3c0488f838cb5700825245b1eb4d471bdb738b15fe81fcc0219",
    ),
    Vector(
        "V11",
        columns(title="na\u00efve caf\u00e9 \u2014 \u65e5\u672c\u8a9e \U0001f389"),
        "d7f3a482bf7a27a000fe098d2d22ae3ba2792e99ac9354995e16f4e8dfab43c6",
    ),
    Vector(
        "V12",
        columns(title="q\" b\\ / \b\f\n\r\t \u0000\u001f\u007f \u2028\u2029 <>&'"),
        "3a8eeaaa04cffb24e10d250a9728ecd998c79c96c7a85f96f08985e90db0a3c2",
    ),
    Vector("V13", columns(title="a\ud800b\udc00c"), "e638e92945bcb68227db73d3c763c7a1186ff6a8d137fadbdb967607fdc1e685"),
    Vector(
        "V14",
        columns(meta={"\uff5e": 2, "\ue000": 3, "\U0001f389": 1, "\u00e9": 5, "z": 4, "Z": 6}),
        "4285e580b4cf3058e42ab6de6157d18d65fa19e5455c9f42e84cef1b3655ad3a",
    ),
    Vector(
        "V15",
        columns(at="1970-01-01T00:00:00.000Z"),
        "2440b0070f97b0fdf4e55624a60e1b96e0bd719791bfa7e404cf5eba0cf81841",
    ),
    Vector("V16", columns(tags=["b", "a"]), "5781c271b055c2672d87290bc9c7c16c6c44e3b16eff88e313cd00ebb531ed1e"),
    Vector(
        "V17",
        columns(meta={"hlc": "", "lastHlc": "123"}),
        "00412ce6265b3f4871ec5468d7333a1b60885a323607af3c79df0feee19bfcc6",
    ),
    Vector("V18", columns(a=1), "55d41fe55777580d596052112db0afe8b696162da87dcacaef6b3ca824c1a87b", {"hlc": "0"}),
    Vector(
        "V19",
        columns(a=1),
        "1a3b2859071fc34c530254b4b7a838a9ec0c014b7907e8307f4f0e3455aac8a8",
        {"hlc": "18446744073709551615"},
    ),
    Vector(
        "V20",
        columns(a=1),
        "9125a533f60cab763e59285a497cf2602b15cee5bfe6f6d1103c0148933e8c01",
        {"hlc": "115998720000065535"},
    ),
    Vector(
        "V21",
        columns(title="x"),
        "5a6daf68b98145be1e47538a9bd8d6a446927e4682ee1d09d70cd7f9c64b8716",
        {"clientId": "\u043a\u043b\u0438\u0435\u043d\u0442-\U0001f389", "rowId": "\u884c/1"},
    ),
    Vector("V22", columns(t="\u00e9"), "d77b4197a760b707d9c2f60338c927b5e6ec913c3553a9dd3531c8e9974a2b12"),
    Vector("V23", columns(t="e\u0301"), "cc6bd5c3fa28d87cbcb3d2dd355e6daafcc574a43c588273f89f869650bc5f12"),
    Vector("V24", columns(a={}, b=[]), "89d7e0cf31c1c4a0e1d1ed54a3e095789ca842a3e1e1a0c8d6c1b2724a80ce30"),
    Vector("V25", [{"column": "a"}], "b044b02723848b253202c08e02a4fccd0d7c63081d0bd72a9e0bc231264d42c6"),
    Vector("V26", columns(a=None), "302945222ba56c9a4821a60806a3787250c59e3e2f1fc5c3cfeee47874672628"),
    Vector(
        "V27",
        [{"column": "a", "type": "number", "value": 1}],
        "2475f17f69abca0ae7cd942c250baf24d2d4e65138550983394df105c6c7f913",
    ),
    Vector(
        "V28",
        columns(meta={"__proto__": 1, "constructor": 2}),
        "bfae759f085c5323426fa839443fd354683603d07bb4eefb23383eba50aad24c",
    ),
)
BY_NAME = {vector.name: vector for vector in VECTORS}

STAMPS = (
    ((0, 1), 1),
    ((1_000_000, 0), 65_536_000_000),
    ((1_770_000_000_000, 0), 115_998_720_000_000_000),
    ((1_770_000_000_000, 65_535), 115_998_720_000_065_535),
    ((1_770_000_000_001, 0), 115_998_720_000_065_536),
    ((2**48 - 1, 65_535), LARGEST),
)
"""A wall and a counter, and the number they are."""

TRACE = (
    ("now", None, 1_000, (1_000, 0)),
    ("now", None, 1_000, (1_000, 1)),
    ("now", None, 990, (1_000, 2)),
    ("now", None, 1_005, (1_005, 0)),
    ("recv", (1_010, 7), 1_005, (1_010, 8)),
    ("recv", (1_010, 3), 1_005, (1_010, 9)),
    ("recv", (500, 9), 1_005, (1_010, 10)),
    ("recv", (6_005, 0), 1_005, (6_005, 1)),
    ("recv", (6_006, 0), 1_005, None),
    ("now", None, 1_005, (6_005, 2)),
    ("recv", (6_005, 65_535), 1_005, (6_006, 0)),
    ("now", None, 7_000, (7_000, 0)),
)
"""What a clock is asked, with what it is told, at which physical time, and what it must say; None is drift."""

JWT_SECRET = "secret"
JWT_CLAIMS: Message = {"sub": "client-a", "gw": "gw1", "role": "client", "exp": 4_102_444_800, "org": "acme"}
JWT = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9."
    "eyJzdWIiOiJjbGllbnQtYSIsImd3IjoiZ3cxIiwicm9sZSI6ImNsaWVudCIsImV4cCI6NDEwMjQ0NDgwMCwib3JnIjoiYWNtZSJ9."
    "g1GLVlfCrk6a_PCFwnc35aMUL_Vlqcu-CbCkxrnvr5Q"
)

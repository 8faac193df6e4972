"""The test vectors of the events, jobs and deltas contracts: from a text to its fingerprint."""

from __future__ import annotations

import json

import pytest

from semel.kernel.hashes import fingerprint
from semel.kernel.json.canonical import Integers, Surrogates, canonical, canonical_slowly, canonicalize
from semel.kernel.json.parse import parse, parse_slowly


def hexadecimal(raw: str, integers: Integers, surrogates: Surrogates) -> str:
    """The fingerprint of a text, by every path there is."""
    data = raw.encode()
    text = canonicalize(data, integers, surrogates)
    assert text == canonical(parse(data), integers, surrogates)
    assert text == canonical_slowly(parse_slowly(data), integers, surrogates)
    return fingerprint(text).hex()


# Partition names arrive here as the contract normalises them: composed, once each, in order.
EVENTS = [
    (
        '["room-7"]',
        '{"type":"note.added","payload":{"text":"hi","n":1.0}}',
        "e5f93a307512dc44a8044478fd3e417466975de5e9bbd9f0379ac383a783854d",
    ),
    (
        r'["caf\u00e9"]',
        '{"type":"t","payload":{"a":-0.0,"b":1e21,"c":1e-7,"d":0.000001,"e":1e16}}',
        "dfc9d2f9d6323278fd7c2f9aa016e552ef7f75e1d6c0f2c40b63b6e559c011b5",
    ),
    (
        r'["\ue000","\ud83d\ude00"]',
        r'{"\ue000":2,"\ud83d\ude00":1,"type":"t"}',
        "6c556cdc0df9646506deec8822fff501d868115e336d8fba9bdf4447c944ec5c",
    ),
    (
        '["p"]',
        r'{"type":"t","payload":{"s":"\u0001\b\t\"\\/\u007f\u2028\u00e9e\u0301"}}',
        "6ff5f1fb0cf179a9332dc13a5c975b705f4f8d985dd593a3788266274aef2b75",
    ),
    (
        r'["\u05d3\u05bc"]',
        r'{"type":"\ufb33"}',
        "805ab44b97a9e3e2ac3ebf8e98c0857d5231519dca95a85542e86196ea000614",
    ),
]


@pytest.mark.parametrize(("partitions", "event", "digest"), EVENTS)
def test_events(partitions: str, event: str, digest: str) -> None:
    raw = f'{{"partitions": {partitions}, "event": {event}}}'
    assert hexadecimal(raw, Integers.REFUSE, Surrogates.REFUSE) == digest


JOBS = [
    (
        '{"kind":"echo_test","params":{"msg":"hello","n":1}}',
        "fbfb837ff1cf3c8564f7d01a7b3b86cfe9fe5a6e56a55cd93d65fc4cf93a5318",
    ),
    (
        '{"params":{"n":2,"msg":"hello"},"kind":"echo_test"}',
        "0415c080d3857365ff9291e9fe42103310d1c3baaea928505cc0160baf39d4d2",
    ),
    ('{"kind":"ping","params":{}}', "2c2c2e9d5bcfc2eb239e7cb9bc6e5e9cc8a464c42b9db6bb121a7b0d62c16c6f"),
    (
        '{"kind":"k","params":{"€":[true,null],"a":1.0,"z":"ü"}}',
        "dea34c4dd99cf650dd814655340f14c9d78ddbd0e930ffaff890ed07d88cf2b6",
    ),
    (
        '{"kind":"k","params":{"\ufb33":2,"\U0001f600":1}}',
        "c9b7f162837cbe3e18afce5ad55aef1cd9e3acc2a510e2d097205a83fe101571",
    ),
    (
        '{"kind":"k","params":{"id":9007199254740993}}',
        "b1299594b209143cb5e046a94189f2cbd56f54bd5b811447c22e0bdd82ae9e06",
    ),
]


@pytest.mark.parametrize(("raw", "digest"), JOBS)
def test_jobs(raw: str, digest: str) -> None:
    assert hexadecimal(raw, Integers.EXACT, Surrogates.REFUSE) == digest


def columns(**values: str) -> str:
    """The JSON text of columns whose values are JSON texts, with names in an order that must be sorted."""
    return "[" + ",".join(f'{{"value": {text}, "column": "{name}"}}' for name, text in values.items()) + "]"


V08 = columns(
    a="1e21",
    b="1e-7",
    c="0.1",
    d="123456789012345678901",
    e="9007199254740993",
    f="5e-324",
    g="1.7976931348623157e308",
    h="1e2",
    i="1e20",
    j="0.000001",
)
V12 = r'"q\" b\\ / \b\f\n\r\t \u0000\u001f\u007f \u2028\u2029 <>&' + "'\""
V14 = r'{"\uff5e":2,"\ue000":3,"z":4,"\u00e9":5,"Z":6,"\ud83c\udf89":1}'

DELTAS = [
    ("[]", {}, "dd09bac6050d0f6d61f3da7e46adcefcff4037df72237f8693746c5e51b5e32f"),
    (columns(title='"Buy milk"'), {}, "c83a248d2431f229a3289cf8a2e5923396df8c9ea1b1ee585c5bd5f21d23a331"),
    (
        columns(title='"Buy milk"', completed="0"),
        {},
        "8b05f2339265bc99d594edff5a6f0a36bf705cf788a6a8e3944e863d580dea1b",
    ),
    (
        columns(completed="0", title='"Buy milk"'),
        {},
        "340c7071c8debe279dd9042648576276ef2d1f8c80d1bf85a15ac6f4f196af58",
    ),
    (
        columns(a="null", b="true", c="false", d="-1", e="42"),
        {},
        "ebd9a08d1957bdf5461341cf27649d863fbfa18b7df7eea28293bf106e4f5bce",
    ),
    (columns(n="0"), {}, "1238ddcafcc32171cabf8ad10b3e8b29a1e3cb29cda0b374c77cdc6d316fa5d4"),
    (columns(n="-0"), {}, "1238ddcafcc32171cabf8ad10b3e8b29a1e3cb29cda0b374c77cdc6d316fa5d4"),
    (columns(n="-0.0"), {}, "1238ddcafcc32171cabf8ad10b3e8b29a1e3cb29cda0b374c77cdc6d316fa5d4"),
    (columns(n="null"), {}, "db09ca313dc48e3d122f67baa5ee99698027896f9f806e5f79de62fe3ae8e62e"),
    (V08, {}, "791803962a35c06a32f7be4b54194c0f6a681abf0ceb022af3be8ef2294fdb85"),
    (
        columns(meta='{"b":1,"a":{"d":[3,1,2],"c":null},"10":"x","9":"y","":"empty"}'),
        {},
        "9bab8eeca777af54cdd48b038f8e7a6ebfac2470e347988309134a27ea38c1ec",
    ),
    (
        columns(meta='{"b":[null,1],"c":{}}'),
        {},
        "1fe806a6cd92d3c0488f838cb5700825245b1eb4d471bdb738b15fe81fcc0219",
    ),
    (
        columns(title='"naïve café — 日本語 🎉"'),
        {},
        "d7f3a482bf7a27a000fe098d2d22ae3ba2792e99ac9354995e16f4e8dfab43c6",
    ),
    (columns(title=V12), {}, "3a8eeaaa04cffb24e10d250a9728ecd998c79c96c7a85f96f08985e90db0a3c2"),
    (
        columns(title=r'"a\ud800b\udc00c"'),
        {},
        "e638e92945bcb68227db73d3c763c7a1186ff6a8d137fadbdb967607fdc1e685",
    ),
    (columns(meta=V14), {}, "4285e580b4cf3058e42ab6de6157d18d65fa19e5455c9f42e84cef1b3655ad3a"),
    (
        columns(at='"1970-01-01T00:00:00.000Z"'),
        {},
        "2440b0070f97b0fdf4e55624a60e1b96e0bd719791bfa7e404cf5eba0cf81841",
    ),
    (columns(tags='["b","a"]'), {}, "5781c271b055c2672d87290bc9c7c16c6c44e3b16eff88e313cd00ebb531ed1e"),
    (
        columns(meta='{"lastHlc":"123","hlc":""}'),
        {},
        "00412ce6265b3f4871ec5468d7333a1b60885a323607af3c79df0feee19bfcc6",
    ),
    (columns(a="1"), {"hlc": "0"}, "55d41fe55777580d596052112db0afe8b696162da87dcacaef6b3ca824c1a87b"),
    (
        columns(a="1"),
        {"hlc": "18446744073709551615"},
        "1a3b2859071fc34c530254b4b7a838a9ec0c014b7907e8307f4f0e3455aac8a8",
    ),
    (
        columns(a="1"),
        {"hlc": "115998720000065535"},
        "9125a533f60cab763e59285a497cf2602b15cee5bfe6f6d1103c0148933e8c01",
    ),
    (
        columns(title='"x"'),
        {"clientId": "клиент-🎉", "rowId": "行/1"},
        "5a6daf68b98145be1e47538a9bd8d6a446927e4682ee1d09d70cd7f9c64b8716",
    ),
    (columns(t=r'"\u00e9"'), {}, "d77b4197a760b707d9c2f60338c927b5e6ec913c3553a9dd3531c8e9974a2b12"),
    (columns(t=r'"e\u0301"'), {}, "cc6bd5c3fa28d87cbcb3d2dd355e6daafcc574a43c588273f89f869650bc5f12"),
    (columns(a="{}", b="[]"), {}, "89d7e0cf31c1c4a0e1d1ed54a3e095789ca842a3e1e1a0c8d6c1b2724a80ce30"),
    ('[{"column":"a"}]', {}, "b044b02723848b253202c08e02a4fccd0d7c63081d0bd72a9e0bc231264d42c6"),
    (columns(a="null"), {}, "302945222ba56c9a4821a60806a3787250c59e3e2f1fc5c3cfeee47874672628"),
    (
        '[{"value":1,"type":"number","column":"a"}]',
        {},
        "2475f17f69abca0ae7cd942c250baf24d2d4e65138550983394df105c6c7f913",
    ),
    (
        columns(meta='{"constructor":2,"__proto__":1}'),
        {},
        "bfae759f085c5323426fa839443fd354683603d07bb4eefb23383eba50aad24c",
    ),
]


@pytest.mark.parametrize(("column_text", "changes", "digest"), DELTAS)
def test_deltas(column_text: str, changes: dict[str, str], digest: str) -> None:
    usual = {"table": "todos", "rowId": "row-1", "hlc": "115998720000000000", "clientId": "client-a"}
    members = json.dumps({**usual, **changes})[:-1]
    raw = f'{members}, "columns": {column_text}}}'
    assert hexadecimal(raw, Integers.ROUND, Surrogates.ESCAPE) == digest

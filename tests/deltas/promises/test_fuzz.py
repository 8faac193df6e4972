"""Bodies damaged at random: no answer is a fault, the server lives, and only what was acknowledged is there."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.deltas.rig import Line
from tests.deltas.wire import Deltas, Message, columns, delta, delta_id, fresh
from tests.harness.together import at_once

BODIES = 2_000
"""For each of two connections."""
LOOK_EVERY = 100
STATUSES = {200, 400, 403, 409, 413, 422}
SCRAPS: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    10**30,
    "",
    "x",
    "0",
    "\ud800",
    [],
    {},
    [[]],
    {"a": {}},
    "1" * 99,
    str(2**64 - 1),
]
TOKENS = [
    b"null",
    b"NaN",
    b"1e999",
    b"-0.0",
    b"[[[[",
    b"}}",
    b'"',
    b"\\u",
    b"\\ud83d",
    b"\xff",
    b"\x00",
    b",",
    b":",
    b"1" * 400,
]


def sound(chance: random.Random) -> Message:
    """A push that is taken: a few deltas with odd values."""
    author = f"c{chance.randrange(3)}"
    made = [
        delta(
            chance.choice(["INSERT", "UPDATE", "DELETE"]),
            columns(**{f"c{number}": odd(chance, 3) for number in range(chance.randrange(4))}),
            row=f"r{chance.randrange(20)}",
            client=author,
            hlc=115_998_720_000_000_000 + chance.randrange(10_000),
        )
        for _ in range(chance.randrange(1, 4))
    ]
    return {"clientId": author, "deltas": made}


def odd(chance: random.Random, levels: int) -> Any:
    if levels and chance.random() < 0.4:
        inside = [odd(chance, levels - 1) for _ in range(chance.randrange(3))]
        return inside if chance.random() < 0.5 else {str(number): one for number, one in enumerate(inside)}
    return copy.deepcopy(chance.choice(SCRAPS))


# -- damage to the document --------------------------------------------------------------------------------------------


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every spot of a document: a container and the key or index in it."""
    found: list[tuple[Any, Any]] = []
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        found += [(value, key), *places(one)]
    return found


def swap_type(chance: random.Random, body: Message) -> None:
    holder, key = chance.choice(places(body))
    holder[key] = copy.deepcopy(chance.choice(SCRAPS))


def remove(chance: random.Random, body: Message) -> None:
    holder, key = chance.choice(places(body))
    del holder[key]


def nest(chance: random.Random, body: Message) -> None:
    holder, key = chance.choice(places(body))
    for _ in range(chance.choice([1, 3, 60, 90])):
        holder[key] = [holder[key]] if chance.random() < 0.5 else {"a": holder[key]}


def move(chance: random.Random, body: Message) -> None:
    (one, here), (other, there) = (chance.choice(places(body)) for _ in range(2))
    other[there] = copy.deepcopy(one[here])


def rename(chance: random.Random, body: Message) -> None:
    holder, key = chance.choice([(holder, key) for holder, key in places(body) if isinstance(holder, dict)])
    holder[key + chance.choice(["", "x", "\n", "\ud800"])] = holder.pop(key)


def hasten(chance: random.Random, body: Message) -> None:
    """A stamp from far ahead."""
    holders = [holder for holder, key in places(body) if key == "hlc" and isinstance(holder, dict)]
    if holders:
        chance.choice(holders)["hlc"] = str(2**64 - 1 - chance.randrange(9))


DOCUMENT: list[Callable[[random.Random, Message], None]] = [swap_type, swap_type, remove, nest, move, rename, hasten]


# -- damage to the text ------------------------------------------------------------------------------------------------


def truncate(chance: random.Random, text: bytes) -> bytes:
    return text[: chance.randrange(len(text))]


def flip(chance: random.Random, text: bytes) -> bytes:
    spot = chance.randrange(len(text))
    return text[:spot] + bytes([text[spot] ^ 1 << chance.randrange(8)]) + text[spot + 1 :]


def insert(chance: random.Random, text: bytes) -> bytes:
    spot = chance.randrange(len(text))
    return text[:spot] + chance.choice(TOKENS) + text[spot:]


def repeat(chance: random.Random, text: bytes) -> bytes:
    start, end = sorted(chance.randrange(len(text)) for _ in range(2))
    return text[:end] + text[start:]


def double_name(chance: random.Random, text: bytes) -> bytes:
    name = chance.choice([b'"op"', b'"hlc"', b'"value"', b'"clientId"', b'"deltas"'])
    return text.replace(name, name + b": 1, " + name, 1)


def huge_number(chance: random.Random, text: bytes) -> bytes:
    return text.replace(b"115998720", chance.choice([b"9" * 5_000, b"1e5", b"-", b"0"]), chance.randrange(1, 3))


TEXT: list[Callable[[random.Random, bytes], bytes]] = [truncate, flip, flip, insert, repeat, double_name, huge_number]


def seal(body: Message) -> None:
    """Give each delta that has an identity the id of it, so that its damage is not found by its id alone."""
    deltas = body.get("deltas")
    for one in deltas if isinstance(deltas, list) else ():
        if isinstance(one, dict) and {"clientId", "columns", "hlc", "rowId", "table", "deltaId"} <= set(one):
            one["deltaId"] = delta_id(one)


def damaged(chance: random.Random) -> bytes:
    """A push with none, one or several kinds of damage."""
    body = sound(chance)
    kind = chance.random()
    if kind < 0.6:
        for _ in range(chance.randrange(1, 3)):
            if places(body):
                chance.choice(DOCUMENT)(chance, body)
        if kind < 0.3:
            seal(body)
    text = json.dumps(body, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")
    if 0.5 < kind < 0.9:
        for _ in range(chance.randrange(1, 4)):
            text = chance.choice(TEXT)(chance, text or b" ")
    return text


def assault(deltas: Deltas, seed: int) -> set[int]:
    """Push damaged bodies to a gateway of one's own; the statuses that came back."""
    chance, gateway = random.Random(seed), fresh("gw")
    stored, seen = 0, set()
    with Line(deltas.nodes[0].port) as line:
        for number in range(BODIES):
            text = damaged(chance)
            status, told = line.push(gateway, text)
            assert status in STATUSES, (seed, number, status, told, text)
            seen.add(status)
            if status == 200:
                stored += told["accepted"] - told["duplicates"]
            else:
                assert told["code"], (seed, number, told)
                assert told["requestId"], (seed, number, told)
            if number % LOOK_EVERY == 0 or number == BODIES - 1:
                assert deltas.gauges(gateway)["deltaCount"] == stored, (seed, number)
    # Nothing is in the log that a reader could not take: each entry is checked as it arrives.
    assert len(deltas.log(gateway)) <= stored
    return seen


def test_damaged_pushes(anywhere: Deltas) -> None:
    seen = at_once([partial(assault, anywhere, seed) for seed in (7, 8)])
    assert set().union(*seen) >= {200, 400, 409, 422}, seen

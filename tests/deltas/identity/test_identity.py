"""20,000 random deltas that Node.js has made and named: the kernel names each alike, and the server believes them all.

They hold every kind of value, numbers of every size, all of Unicode with halves of pairs, nested and unknown members,
and what has no form in JSON. Node.js gives the text that a client would send, so nothing of ours stands in between.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from semel.kernel.hashes import columns_text, delta_id, json_text
from semel.kernel.json.canonical import parse
from semel.surfaces.deltas.wire.push_body import content_id, read_delta
from tests.deltas.vectors import Message, delta, now_ms, stamp
from tests.deltas.wire import Deltas, fresh, path, serving
from tests.events.insieme.packages import INSTALL_SECONDS, installed_node

HERE = Path(__file__).parent
COUNT, SEED = 20_000, 7
PUSHED, BATCH = 4_000, 400
"""How many of them go through a server; none of these has a stamp ahead of the clock."""
NODE_SECONDS = 60
HASHED = ("clientId", "columns", "hlc", "rowId", "table")

# Installing is in the set-up of whichever test comes first.
pytestmark = pytest.mark.timeout(INSTALL_SECONDS + NODE_SECONDS + 60)

read = partial(json.loads, parse_int=float)
"""JSON as JavaScript reads it: every number is a double."""


class Named(NamedTuple):
    """A delta, as Node.js has made it."""

    id: str
    canonical: str
    sent: str

    @property
    def delta(self) -> Message:
        found: Message = read(self.sent)
        return found


@pytest.fixture(scope="module")
def named() -> list[Named]:
    """The deltas and their names; the same in every run, but for the time."""
    command = [installed_node(HERE), "deltas.mjs", "--count", str(COUNT), "--seed", str(SEED)]
    command += ["--latest", str(stamp(now_ms()))]
    done = subprocess.run(command, cwd=HERE, timeout=NODE_SECONDS, check=True, stdout=subprocess.PIPE)
    lines = [json.loads(line) for line in done.stdout.split(b"\n") if line]
    found = [Named(line["deltaId"], line["canonical"], line["sent"]) for line in lines]
    assert len({one.id for one in found}) == COUNT
    return found


def parts(delta: Message) -> tuple[str, str, int, str, str]:
    """What the kernel's function is given for a delta."""
    return (
        json_text(delta["clientId"]),
        columns_text([json_text(column) for column in delta["columns"]]),
        int(delta["hlc"]),
        json_text(delta["rowId"]),
        delta["table"],
    )


def test_the_kernel_gives_every_delta_the_name_that_the_library_gave_it(named: list[Named]) -> None:
    for one in named:
        delta = json.loads(one.sent)
        assert delta_id(*parts(delta)).hex() == one.id, one.canonical
        assert json_text({name: delta[name] for name in HASHED}) == one.canonical


def test_the_parser_of_pushes_gives_every_delta_the_same_name(named: list[Named]) -> None:
    for one in named:
        delta = read_delta(parse(one.sent.encode()), None)
        assert (content_id(delta), delta.id) == (bytes.fromhex(one.id), bytes.fromhex(one.id)), one.canonical


def test_reading_a_delta_leaves_it_as_it_was() -> None:
    columns: list[Message] = [{"column": "title", "value": "tea"}, {"column": "note", "value": None, "more": 1}]
    item = delta("INSERT", columns, row="r", client="c", hlc=stamp(now_ms(), 1))
    before = deepcopy(item)
    assert read_delta(item, None) == read_delta(item, None)
    assert item == before


def test_the_deltas_are_of_every_kind(named: list[Named]) -> None:
    texts = [one.canonical for one in named]
    wanted = ("e+", "e-", "null", "true", "false", "{}", "[]", "\\ud", "\\u00", "\\n", "\x7f", "\u2028", "\U0001f389")
    for piece in (*wanted, '"__proto__":', '"type":', '"value":-', "00000000000000", ".000Z", '"hlc":"0"'):
        assert sum(piece in text for text in texts) > 1, piece
    assert any(int(one.delta["hlc"]) > stamp(now_ms() + 3_600_000) for one in named)
    assert any("value" not in column for one in named for column in one.delta["columns"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deltas]:
    with serving(tmp_path_factory.mktemp("identity") / "data") as deltas:
        yield deltas


@pytest.mark.parametrize("spelling", ["as sent", "all escaped"])
def test_the_server_believes_every_name(named: list[Named], server: Deltas, spelling: str) -> None:
    gateway = fresh("gw")
    for start in range(0, PUSHED, BATCH):
        batch = named[start : start + BATCH]
        texts = [one.sent if spelling == "as sent" else json.dumps(json.loads(one.sent)) for one in batch]
        body = f'{{"clientId":"node","deltas":[{",".join(texts)}]}}'
        answer = server.push_raw(gateway, body.encode(), expect=None)
        assert answer.http == 200, answer.body
        assert (answer["accepted"], answer["duplicates"]) == (BATCH, 0)
    check_entries(server, gateway, named)
    assert server.gauges(gateway)["deltaCount"] == PUSHED


def check_entries(server: Deltas, gateway: str, named: list[Named]) -> None:
    """What is pulled is what was pushed, value for value, unless it says that it was resolved."""
    pushed = {one.id: one.delta for one in named[:PUSHED]}
    entries, since, is_more = 0, "0", True
    while is_more:
        page = read(server.send("GET", f"{path(gateway, 'pull')}?since={since}&clientId=reader&limit=10000").content)
        for entry in page["deltas"]:
            delta = pushed[entry["deltaId"]]
            kept = [name for name in HASHED if name != "columns" or "resolved" not in entry]
            assert [entry[name] for name in kept] == [delta[name] for name in kept]
            entries += "resolved" not in entry
        since, is_more = page["serverHlc"], page["hasMore"]
    assert entries > PUSHED // 2

"""What a user's own checker of types makes of `client.events`: mypy and Pyright, strict, in a folder of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.once.test_typed_use import found

PROGRAM = Path(__file__).parent / "typed/program.py"
HEAD = """\
from semel import AsyncClient, Client
from semel.client import Cursor, EventDraft, FileCursor
client = Client()
other = AsyncClient()
async def use() -> None:
"""
WRONG = (
    'client.events.submit("t")',
    'client.events.submit(5, partitions="p")',
    'client.events.submit("t", partition="p")',
    'client.events.submit("t", partitions=5)',
    'text: str = client.events.submit("t", partitions="p").committed_id',
    'client.events.submit_many(["t"])',
    'client.events.follow("p", cursor="0:5")',
    'client.events.follow("p", cursor=FileCursor("c"), types=5)',
    'client.events.follow("p").ack("0:5")',
    'client.events.read("p", since="0:5")',
    'Cursor("0", 5)',
    "EventDraft(5)",
    'number: int = other.events.end("p")',
    'for event in other.events.follow("p"): ...',
    "client.events.nothing",
)
RIGHT = (
    'client.events.submit("t", partitions="p")',
    'await other.events.submit("t", partitions="p")',
    'client.events.follow("p", cursor=Cursor(0, 5))',
)


def test_types_are_kept_and_wrong_uses_are_errors(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path)
    lines = "".join(f"    {one}\n" for one in WRONG + RIGHT)
    (tmp_path / "wrong.py").write_text(f"# pyright: standard\n{HEAD}{lines}")
    first = HEAD.count("\n") + 2
    for tool, errors in found(tmp_path).items():
        assert not [one for one in errors if one[0] != "wrong.py"], tool
        minded = {WRONG[number - first] for _, number, _ in errors if first <= number < first + len(WRONG)}
        assert not [one for one in WRONG if one not in minded], tool
        assert not [one for one in errors if not first <= one[1] < first + len(WRONG)], tool

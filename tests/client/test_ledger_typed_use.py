"""What a user's own checker of types makes of the ledger's client: mypy and Pyright, strict, in another folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.once.test_typed_use import found

PROGRAM = Path(__file__).parent / "typed/ledger_program.py"
HEAD = """\
# pyright: standard
from semel.client import AsyncClient, Client, DeleteKey, IfVersion, SetKey
client, other = Client(), AsyncClient()
place, far = client.ledger.place(1, 2), other.ledger.place(1, 2)
writer = place.writer("c", "c.db")
async def use() -> None:
"""
WRONG = (
    'place.write([DeleteKey("a")])',
    'place.write(DeleteKey("a"), client="c")',
    'place.write([DeleteKey("a")], client="c", sequence="1")',
    'place.write([DeleteKey("a")], client=5)',
    'place.write([{"deleteEntity": {"key": "a"}}], client="c")',
    'number: int = place.write([DeleteKey("a")], client="c")',
    'text: str = await far.read("a")',
    "place.read(5)",
    'place.read("a").value',
    'SetKey("a", 5)',
    'SetKey("a", "1", "absent")',
    'IfVersion("3")',
    'writer.write([DeleteKey("a")], client="c")',
    "writer.recovered[0].outcome.height",
    "client.ledger.place(1, 2, head='file')",
    "client.ledger.nothing()",
)
RIGHT = ('place.write([DeleteKey("a")], client="c")', 'await far.read("a")', 'SetKey("a", b"1", IfVersion(3))')
"""Lines of the same program that no checker may mind: else the ones above would prove nothing."""


def test_types_are_kept_and_wrong_uses_are_errors(tmp_path: Path) -> None:
    shutil.copy(PROGRAM, tmp_path)
    (tmp_path / "wrong.py").write_text(HEAD + "".join(f"    {one}\n" for one in WRONG + RIGHT))
    first = HEAD.count("\n") + 1
    for tool, errors in found(tmp_path).items():
        assert not [one for one in errors if one[0] != "wrong.py"], tool
        minded = {WRONG[number - first] for _, number, _ in errors if first <= number < first + len(WRONG)}
        assert not [one for one in WRONG if one not in minded], tool
        assert not [one for one in errors if not first <= one[1] < first + len(WRONG)], tool

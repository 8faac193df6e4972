"""What a user's own checker of types makes of replicas: mypy and Pyright, strict, in another folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.once.test_typed_use import found

PROGRAM = Path(__file__).parent / "typed/replica_program.py"
HEAD = """\
# pyright: standard
from semel.client import AsyncClient, Client
client, other = Client(), AsyncClient()
db, far = client.deltas("a.db", "shop"), other.deltas("b.db", "shop")
async def use() -> None:
"""
WRONG = (
    "client.deltas()",
    "client.deltas('a.db', gateway=5)",
    "client.deltas('a.db', 'shop', moved='yes')",
    "client.deltas('a.db', 'shop', on_dead=5)",
    "db.insert('todos', 1, {})",
    "db.insert('todos', '1')",
    "number: int = db.insert('todos', '1', {})",
    "db.update('todos', '1', ['title'])",
    "text: str = db.update('todos', '1', {})",
    "await db.sync()",
    "pushed: int = db.push()",
    "accepted: str = (await far.push()).accepted",
    "far.push().accepted",
    "db.follow(every='soon')",
    "db.watch('todos', where=5)",
    "db.watch('todos', lambda: True)",
    "db.take_lost('all')",
    "for one in far.watch('todos'): pass",
    "client.deltas_admin.save_schema('todos', {'n': 'integer'})",
    "client.deltas_admin.nothing()",
    "db.nothing()",
)
RIGHT = ("db.sync()", "await far.sync()", "db.watch('todos', {'done': None})", "client.deltas_admin.flush()")
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

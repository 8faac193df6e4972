"""The rows of the tree that plain groups load: each once, and few before their bytes are counted."""

from __future__ import annotations

import pytest

from semel.engine.batch import steps_of
from semel.engine.group_commit import drive
from semel.surfaces.ledger import commands as real
from semel.surfaces.ledger.model import SetEntity
from semel.surfaces.ledger.rules import plain_load
from semel.surfaces.ledger.rules.state_tree import bucket_of
from semel.surfaces.ledger.tables import LEDGER_TREE
from tests.ledger.rules.rig import OWN
from tests.ledger.rules.test_plain_write import NAMES, Compared

MANY = [name for name in (b"many-%d" % number for number in range(4_000)) if bucket_of(name) == 1]
"""Keys of one bucket, whose tree has several levels."""


def test_few_tree_rows_are_loaded_before_their_bytes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Compared(1, 0)
    compared.batch(real.WriteMany(tuple(compared.full.command(OWN, SetEntity(name, b"x")) for name in NAMES)))
    monkeypatch.setattr(plain_load, "MAX_PAGE_BYTES", 0)
    loads = compared.fast.inside.store.loads
    del loads[:]
    group = compared.group(real.WriteMany(tuple(compared.full.command(OWN, SetEntity(name, b"y")) for name in NAMES)))
    assert len(drive(steps_of(compared.fast.inside.around, [], plain=[group])).left) == 1
    assert 0 < sum(len(keys.get(LEDGER_TREE, ())) for keys, _ in loads) <= 16


def test_a_tree_row_is_loaded_once() -> None:
    compared = Compared(1, 0)
    compared.full_only(real.WriteMany((compared.full.command(OWN, *(SetEntity(name, b"x") for name in MANY)),)))
    loads = compared.fast.inside.store.loads
    del loads[:]
    compared.batch(real.WriteMany((compared.full.command(OWN, SetEntity(MANY[0], b"y")),)))
    assert compared.plain == 1
    assert [len(keys[LEDGER_TREE]) for keys, _ in loads if keys.get(LEDGER_TREE)] == [1]

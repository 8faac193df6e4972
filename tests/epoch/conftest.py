"""One restored store for all tests of a module: of each kind, by a copy and by hand, and by backup and restore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.epoch.restored import BackupPremises, Held, Premises, Writer, first_life, lost_life, new_life, term_of

COPIES, BACKUPS = ("sqlite",), ("sqlite to postgres", "postgres to sqlite")


class Restored(NamedTuple):
    """A running server after the raise, and what clients hold from before."""

    premises: Premises
    writer: Writer
    held: Held
    epoch: int
    new_ids: list[int]
    new_term: int


@pytest.fixture(scope="module", params=[*COPIES, *BACKUPS])
def restored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restored]:
    kind = BackupPremises if request.param in BACKUPS else Premises
    premises = kind(request.param, tmp_path_factory.mktemp("epoch"))
    with premises.serving() as writer:
        kept = first_life(writer)
    premises.back_up()
    with premises.serving() as writer:
        held = lost_life(writer, kept, term_of(writer))
    premises.restore()
    epoch = premises.raise_epoch()
    with premises.serving() as writer:
        ids = new_life(writer)
        yield Restored(premises, writer, held, epoch, ids, term_of(writer))

"""Rows that more than one client makes: an INSERT must not reach a client that has made the row itself meanwhile.

A client applies it as a plain INSERT; on a row that is there it fails, and with it every page from then on.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deltas.cast import Cast
from tests.deltas.client import Scripted
from tests.deltas.play import Play
from tests.deltas.wire import Deltas

ROWS = 4
SEEDS = range(1, 13)


@pytest.fixture
def cast(anywhere: Deltas, gateway: str) -> Iterator[Cast]:
    with Cast(anywhere, gateway) as made:
        yield made


@pytest.fixture
def pair(cast: Cast) -> tuple[Scripted, Scripted]:
    """The clock of the first is behind, by more than a machine stands still: what the second writes wins."""
    return cast.client("a", ahead_ms=-60_000), cast.client("b")


def test_two_clients_make_the_same_row(cast: Cast, pair: tuple[Scripted, Scripted]) -> None:
    first, second = pair
    first.insert("r", title="of a")
    second.insert("r", note="of b")
    first.cycle()
    second.cycle()
    check_equal(cast)


def test_a_row_is_made_again_while_another_brings_it_back(cast: Cast, pair: tuple[Scripted, Scripted]) -> None:
    first, second = pair
    first.insert("r", title="t")
    first.cycle()
    second.cycle()
    second.update("r", title="edited")
    first.delete("r")
    first.push()
    second.push()
    first.insert("r", title="again")
    check_equal(cast)


def test_a_row_is_made_again_while_its_delete_is_on_its_way_back(cast: Cast, pair: tuple[Scripted, Scripted]) -> None:
    """The delete has lost, so that the row is to be inserted again in its author's database."""
    first, second = pair
    first.insert("r", title="t")
    first.cycle()
    second.cycle()
    second.update("r", title="edited")
    second.push()
    first.delete("r")
    first.push()
    first.insert("r", title="again")
    first.push()
    check_equal(cast)


class Crowded(Play):
    """A random run on few rows, which everybody makes, changes and deletes."""

    def write(self, client: Scripted) -> None:
        row = f"r{self.chance.randrange(ROWS)}"
        if ("todos", row) not in client.rows():
            client.insert(row, "todos", **self._cells("todos"))
        elif self.chance.random() < 0.3:
            client.delete(row)
        else:
            client.update(row, "todos", **self._cells("todos"))


@pytest.mark.parametrize("seed", SEEDS)
def test_clients_that_share_every_row_end_equal(cast: Cast, seed: int) -> None:
    Crowded(cast, seed).run()
    check_equal(cast)


def check_equal(cast: Cast) -> None:
    cast.settle()
    cast.agree()
    cast.check_untroubled()

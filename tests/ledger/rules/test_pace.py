"""How fast: the limit on an organization's transactions goes by the clock, and a pipeline is decided at first sight."""

from __future__ import annotations

import random
from hashlib import sha256

import pytest

from semel.kernel.errors import Refusal
from semel.surfaces.ledger.commands import WriteCommitted
from semel.surfaces.ledger.limits import PIPELINE, LedgerPolicy
from semel.surfaces.ledger.model import DeleteEntity, Operation, SetEntity
from semel.surfaces.ledger.rules.state_tree import bucket_of, paths_of
from semel.surfaces.ledger.tables import LEDGER_ORG, LEDGER_TREE
from tests.ledger.rules.rig import BEGIN, OWN, LedgerDesk

# -- the rate ---------------------------------------------------------------------------------------------------------

RATE = 3
BACK_SECONDS = 30


def written(desk: LedgerDesk, tries: int) -> list[bool]:
    """Which of so many transactions in a row are committed; the others are refused for their number."""
    answers = [desk.write(OWN, SetEntity(b"k", b"v")) for _ in range(tries)]
    for answer in answers:
        assert isinstance(answer, WriteCommitted) or (
            isinstance(answer, Refusal) and answer.code == "ledger:resource_exhausted"
        )
    return [isinstance(answer, WriteCommitted) for answer in answers]


def test_so_many_in_a_second_and_as_many_in_the_next() -> None:
    desk = LedgerDesk(LedgerPolicy(writes_per_second=RATE))
    for _ in range(3):
        assert written(desk, RATE + 2) == [True] * RATE + [False] * 2
        desk.pass_seconds(1)


def test_after_a_start_with_the_clock_set_back_it_goes_on_by_the_clock() -> None:
    """The log's own time stands still until the clock has caught up; the limit must not stand still with it."""
    desk = LedgerDesk(LedgerPolicy(writes_per_second=RATE))
    assert written(desk, RATE + 1) == [True] * RATE + [False]
    desk.world.wall -= 1_000 * BACK_SECONDS
    desk.open()
    for _ in range(BACK_SECONDS + 2):
        assert written(desk, RATE + 1) == [True] * RATE + [False]
        [org] = desk.rows(LEDGER_ORG)
        assert org.at_seconds == max(BEGIN, desk.world.wall // 1_000)
        desk.pass_seconds(1)


# -- the pipeline -----------------------------------------------------------------------------------------------------

DIGEST = b"\xab"
"""Keys whose paths begin with these two branches: two of them in one bucket stand three pages deep."""
LEVELS = 3
TRIES = 150_000


def deep_buckets() -> list[list[bytes]]:
    """Keys that share a bucket and the first two branches in it, bucket by bucket."""
    found: dict[int, list[bytes]] = {}
    for key in (b"key-%d" % number for number in range(TRIES)):
        if sha256(key).digest()[:1] == DIGEST:
            found.setdefault(bucket_of(key), []).append(key)
    return [keys for keys in found.values() if len(keys) > 1]


@pytest.fixture(scope="module")
def buckets() -> list[list[bytes]]:
    return deep_buckets()


@pytest.mark.parametrize("is_spread", [True, False], ids=["each in its own bucket", "a few to a bucket"])
@pytest.mark.parametrize("is_removal", [False, True], ids=["set", "delete"])
def test_a_pipeline_on_a_deep_tree_is_decided_without_reruns(
    buckets: list[list[bytes]], is_spread: bool, is_removal: bool
) -> None:
    desk = LedgerDesk()
    desk.commit(OWN, *[SetEntity(key, b"before") for keys in buckets for key in keys])
    depth = max(len(path) for row in desk.rows(LEDGER_TREE) for path in paths_of(row.pages))
    assert depth >= LEVELS
    spread, close = [keys[0] for keys in buckets], [key for keys in buckets for key in keys]
    chosen = (spread if is_spread else close)[:PIPELINE]
    assert len(chosen) == PIPELINE
    numbers = list(range(1, PIPELINE + 1))
    random.Random(1).shuffle(numbers)

    def operation(key: bytes) -> Operation:
        return DeleteEntity(key) if is_removal else SetEntity(key, b"after")

    commands = [desk.command(OWN, operation(chosen[number - 1]), client=b"bob", sequence=number) for number in numbers]
    desk.inside.store.loads.clear()
    result = desk.run(*commands)
    assert all(isinstance(outcome.answer, WriteCommitted) for _, outcome in result.decided)
    assert (len(result.decided), result.reruns) == (PIPELINE, 0)
    pages = [keys for keys, _ in desk.inside.store.loads if LEDGER_TREE in keys]
    assert len(pages) <= depth


def test_with_the_clock_set_back_under_a_running_process_the_rate_goes_on() -> None:
    desk = LedgerDesk(LedgerPolicy(writes_per_second=RATE))
    assert written(desk, RATE + 1) == [True] * RATE + [False]
    desk.world.wall -= 1_000 * BACK_SECONDS
    for _ in range(BACK_SECONDS + 2):
        desk.pass_seconds(1)
        assert written(desk, RATE + 1) == [True] * RATE + [False]

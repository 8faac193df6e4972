"""Power cuts: what a disk keeps of unsynced writes, and a server that is held against a model after each cut."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.harness.crash.run import CrashPlan, check_lives
from tests.harness.crash.verdict import Verdict
from tests.store.powercut.disk import DiskCreate, DiskDelete, DiskSync, DiskTruncate, DiskWrite, Operation, after_cut
from tests.store.powercut.history import CUTS_A_LIFE, LIVES, History, ServerUnderPowerCuts

A, B = b"a" * 1_024, b"b" * 1_024


def outcomes(*operations: Operation) -> set[bytes | None]:
    """What cuts after these operations leave of a file that had the content A."""
    return {after_cut({"f": A}, operations, random.Random(seed)).get("f") for seed in range(300)}


def test_a_power_cut_loses_doubles_and_changes_no_answered_write(tmp_path: Path) -> None:
    check_lives(ServerUnderPowerCuts, CrashPlan(tmp_path, LIVES * CUTS_A_LIFE))


@pytest.mark.parametrize("file", ["-wal", "semel.db"])
def test_the_model_notices_a_disk_that_lies_about_the_syncs_of_a_file(file: str) -> None:
    verdict = Verdict()
    asyncio.run(History(1, verdict, lies=file).run())
    assert verdict.faults


def test_a_synced_write_is_kept() -> None:
    assert outcomes(DiskWrite("f", 0, B), DiskSync("f", 1, with_directory=False)) == {B}


def test_a_sync_keeps_nothing_that_ended_after_it_began() -> None:
    assert A in outcomes(DiskWrite("f", 0, B), DiskSync("f", 0, with_directory=False))


def test_any_sectors_of_an_unsynced_write_are_kept() -> None:
    assert outcomes(DiskWrite("f", 0, B)) == {A, B, A[:512] + B[512:], B[:512] + A[512:]}


def test_a_later_write_is_kept_without_an_earlier_one() -> None:
    left = outcomes(DiskWrite("f", 1_024, B), DiskWrite("f", 2_048, B))
    assert {A + B, A + B + B, A + bytes(1_024) + B, A} <= left


def test_an_unsynced_truncation_is_kept_or_lost() -> None:
    assert outcomes(DiskTruncate("f", 0)) == {A, b""}


def test_a_directory_entry_is_kept_or_lost_until_the_directory_is_synced() -> None:
    assert outcomes(DiskDelete("f", with_directory=False)) == {A, None}
    assert outcomes(DiskDelete("f", with_directory=True)) == {None}
    made = (DiskCreate("g"), DiskWrite("g", 0, B), DiskSync("g", 2, with_directory=False))
    left = [after_cut({}, made, random.Random(seed)).get("g") for seed in range(50)]
    assert set(left) == {None, B}

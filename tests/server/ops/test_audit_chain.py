"""The chain of the audit log on files alone: rotations, restarts and crashes at each step leave it whole."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from semel.server.ops import audit_chain
from semel.server.ops.audit_chain import (
    ADOPTED,
    BROKEN,
    CLOSED,
    FIRST_HEAD,
    START,
    ChainedFile,
    ChainHead,
    chained,
    member_of,
)
from semel.server.ops.audit_verify import ChainReport, verify_chain
from semel.server.ops.rotated_file import KEPT, LineFile, kept_name

NAME = "audit.jsonl"
MAX_BYTES = 1_000


def line_of(event: str, details: Mapping[str, Any]) -> bytes:
    line = {"ts": "2024-02-29T00:00:00.007Z", "event": event, "details": dict(details)}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


class Log:
    """A chained file over the lives of a server; the store has the head of the last `sync`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self.head: ChainHead | None = FIRST_HEAD
        self._count = 0
        self.file = self._opened()

    def write(self, lines: int = 1, *, is_synced: bool = True) -> None:
        """Write lines, and sync now and then."""
        for _ in range(lines):
            if is_synced and self._count % 10 == 0:
                self.sync()
            self._count += 1
            self.file.append([line_of("NOTED", {"number": self._count})])

    def sync(self) -> None:
        head = self.file.sync()
        if head is not None:
            self.head = head
            self.file.vouch(head)

    def restart(self) -> None:
        self.file.close()
        self.file = self._opened()

    def verified(self) -> ChainReport:
        return verify_chain(self.path, self.head)

    def events(self) -> list[str]:
        names = [*(kept_name(self.path, number) for number in range(KEPT, 0, -1)), self.path]
        texts = [text for name in names if name.exists() for text in name.read_bytes().splitlines()]
        return [json.loads(text)["event"] for text in texts]

    def _opened(self) -> ChainedFile:
        return ChainedFile(self.path, line_of, self.head, "no_head", MAX_BYTES)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_a_line_has_its_number_and_the_hash_of_the_line_before(log: Log) -> None:
    log.write(3)
    members = [member_of(text) for text in log.path.read_bytes().splitlines(keepends=True)]
    assert [member.seq for member in members if member] == [1, 2, 3]
    first, second, third = members
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.prev, second.prev, third.prev) == (bytes(32), first.digest, second.digest)


def test_details_that_look_like_a_link_are_no_link() -> None:
    text, link = chained(line_of("NOTED", {"x": ',"seq":9,"prev":"' + "0" * 64 + '"}'}), START)
    member = member_of(text)
    assert member is not None
    assert (member.seq, member.link) == (link.lines, link)


def test_lines_that_were_dropped_by_size_are_no_finding(log: Log) -> None:
    log.write(100)
    log.sync()
    report = log.verified()
    assert report.finding is None
    assert report.first > 1
    assert report.last == report.head
    assert kept_name(log.path, KEPT).exists()


def test_a_file_is_not_dropped_before_the_store_knows_the_files_that_stay(log: Log) -> None:
    log.write(200, is_synced=False)
    assert log.verified().first == 1
    assert log.verified().finding is None
    log.sync()
    log.write(20)
    assert log.verified().first > 1


def test_a_store_that_is_away_for_long_does_not_keep_all_files(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_chain, "GRACE_BYTES", 2_000)
    log.write(400, is_synced=False)
    assert sum(path.stat().st_size for path in log.path.parent.iterdir()) < (KEPT + 1) * 4_000
    log.sync()
    assert log.verified().finding is None


def test_a_restart_continues_the_chain_wherever_the_head_is(log: Log) -> None:
    """The head in the store is as old as the last sync, and the files may have rotated since."""
    chance = random.Random(7)
    for _ in range(60):
        log.write(chance.randrange(1, 9), is_synced=False)
        if chance.random() < 0.5:
            log.sync()
        log.restart()
        report = log.verified()
        assert report.finding is None
    log.write()
    assert not {ADOPTED, BROKEN} & set(log.events())


@pytest.mark.parametrize("step", range(KEPT + 2))
def test_a_crash_at_each_step_of_a_rotation(log: Log, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the closing line, and after each of the renames."""
    log.write(60)
    log.sync()
    steps = iter(range(KEPT + 2))
    rename = Path.replace

    def crash(path: Path, target: Path) -> Path:
        if next(steps) == step:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises((KeyboardInterrupt, StopIteration)):
            log.write(100)
    log.restart()
    assert log.verified().finding is None
    log.write(40)
    log.sync()
    assert log.verified().finding is None
    assert {ADOPTED, BROKEN} & set(log.events()) == set()


def test_a_disk_that_fails_in_a_rotation_loses_no_line(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write(20)
    with monkeypatch.context() as patch:
        patch.setattr(LineFile, "move_aside", _fail)
        with pytest.raises(OSError, match="full"):
            log.write(20)
        assert log.file.is_behind
        assert log.file.sync() is None, "a head is never ahead of the file"
    log.write(20)
    log.sync()
    report = log.verified()
    assert report.finding is None
    assert log.events().count(CLOSED) >= 2


def _fail(file: LineFile) -> None:
    raise OSError(28, "the disk is full")


def test_a_torn_line_is_told_and_no_finding(log: Log) -> None:
    log.write(3)
    log.sync()
    with log.path.open("ab") as file:
        file.write(b'{"ts":"2024-02-')
    log.restart()
    log.write(3)
    report = log.verified()
    assert report.finding is None
    assert any("cut short" in note for note in report.notes)


def test_a_line_that_was_added_is_found(log: Log) -> None:
    log.write(3)
    log.sync()
    with log.path.open("ab") as file:
        file.write(line_of("NOTED", {"number": 4}))
    finding = log.verified().finding
    assert finding is not None
    assert finding.line == 4


def test_a_forged_chain_of_the_same_length_is_found(log: Log, tmp_path: Path) -> None:
    log.write(5)
    log.sync()
    other = Log(tmp_path / "other")
    other._count = 100
    other.write(5)
    log.path.write_bytes(other.path.read_bytes())
    finding = log.verified().finding
    assert finding is not None
    assert finding.seq == 5


def test_a_forged_drop_after_the_head_excuses_no_missing_line(log: Log) -> None:
    """A server dies, and a closing line is forged that would have all earlier lines dropped."""
    log.write(4)
    log.sync()
    assert log.head is not None
    closing, link = chained(line_of(CLOSED, {"first": 1, "kept_from": 5}), log.head.link)
    more, _ = chained(line_of("NOTED", {}), link)
    log.path.write_bytes(closing + more)
    finding = log.verified().finding
    assert finding is not None
    assert finding.seq == 1


def test_files_that_are_not_those_of_the_head_are_told_at_the_next_start(log: Log) -> None:
    log.write(5)
    log.sync()
    log.path.unlink()
    log.restart()
    log.write()
    assert log.events() == [BROKEN, "NOTED"]
    log.sync()
    finding = log.verified().finding
    assert finding is not None
    assert finding.seq == 1


def test_files_without_a_head_are_adopted_and_that_is_a_finding(log: Log) -> None:
    log.write(3)
    log.head = None
    log.restart()
    log.write()
    assert log.events()[-2:] == [ADOPTED, "NOTED"]
    log.sync()
    finding = log.verified().finding
    assert finding is not None
    assert finding.seq == 4


def test_an_archived_file_takes_the_place_of_one_that_was_moved(log: Log, tmp_path: Path) -> None:
    log.write(30)
    log.sync()
    oldest = next(path for number in range(KEPT, 0, -1) if (path := kept_name(log.path, number)).exists())
    archived = oldest.rename(tmp_path / f"{oldest.name}.moved")
    assert log.verified().finding is not None
    assert verify_chain(log.path, log.head, [archived]).finding is None

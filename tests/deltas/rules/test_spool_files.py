"""Files of checkpoints: how many there may be, how large, where, and what happens when the disk does not take them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from semel.kernel.errors import Refusal, Refused
from semel.server.memory_budget import Budget
from semel.surfaces.deltas.spool_files import FREE_BYTES, MAX_AT_ONCE, MAX_EACH, SpoolFile, SpoolFiles, folder_for

PLENTY = 2 * FREE_BYTES


class Files:
    """Spools of one test; what it opens is closed behind it."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self.folder = folder

    def spools(self, most: int = 4_000, free: int = PLENTY) -> SpoolFiles:
        self.free = free
        return SpoolFiles(self.folder, most, lambda _: self.free)

    def open(self, spools: SpoolFiles, holder: Hashable = "a") -> SpoolFile:
        spool = spools.open(holder)
        self._stack.callback(spool.close)
        return spool


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    with ExitStack() as stack:
        yield Files(stack, tmp_path)


def refusal(call: Callable[[], object]) -> Refusal:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.refusal


def test_what_is_written_is_read(files: Files) -> None:
    spools = files.spools()
    spool = files.open(spools)
    spool.write(b"lost")
    spool.restart()
    spool.write(b"ab")
    spool.write(b"c")
    spool.rewind()
    assert (spool.size, spool.read(2), spool.read(2), spool.read(2)) == (3, b"ab", b"c", b"")
    assert spools.bytes.held == 3
    spool.close()
    spool.close()
    assert spools.bytes.held == 0


def test_so_many_in_all_and_for_each(files: Files) -> None:
    spools = files.spools()
    held = [files.open(spools, number // MAX_EACH) for number in range(MAX_AT_ONCE)]
    assert refusal(lambda: spools.open("another")).name == "BACKPRESSURE_ERROR"
    held.pop().close()
    assert refusal(lambda: spools.open(0)).name == "BACKPRESSURE_ERROR"
    files.open(spools, "another")
    for spool in held:
        spool.close()
    files.open(spools, 0)


def test_so_much_in_all_and_for_each(files: Files) -> None:
    """One caller has a quarter."""
    spools = files.spools()
    first, second = files.open(spools), files.open(spools)
    first.write(b"x" * 600)
    assert refusal(lambda: second.write(b"x" * 500)).name == "BACKPRESSURE_ERROR"
    second.write(b"x" * 400)
    for name in ("b", "c", "d"):
        files.open(spools, name).write(b"x" * 1_000)
    late = files.open(spools, "e")
    assert refusal(lambda: late.write(b"x")).name == "BACKPRESSURE_ERROR"
    first.close()
    late.write(b"x" * 600)


def test_one_that_could_never_be_is_not_asked_for_again(files: Files) -> None:
    """404 is what sends a client to the log; 503 would have it come back for ever."""
    spool = files.open(files.spools())
    spool.write(b"x" * 1_000)
    assert refusal(lambda: spool.write(b"x")).name == "NOT_FOUND"


def test_the_disk_is_not_filled(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    spool = files.open(files.spools(free=FREE_BYTES + 10))
    spool.write(b"x" * 10)
    files.free = FREE_BYTES + 9
    assert refusal(lambda: spool.write(b"x" * 10)).name == "BACKPRESSURE_ERROR"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_folder_that_is_not_there(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    files.folder /= "none"
    spools = files.spools()
    for _ in range(2 * MAX_EACH):  # no place is lost by it
        assert refusal(lambda: spools.open("a")).message.startswith("There is no room")
    assert [record.exc_info for record in caplog.records] == [None] * 2 * MAX_EACH


def test_a_disk_that_is_full(caplog: pytest.LogCaptureFixture) -> None:
    """Closing the file would try once more to write to it, and fail once more."""
    budget = Budget(1_000, 1_000)
    with Path("/dev/full").open("wb") as full:
        spool = SpoolFile(full, budget.share("a"), budget.share("a"), lambda: PLENTY)
        assert refusal(lambda: spool.write(b"x")).name == "BACKPRESSURE_ERROR"
        spool.close()
    assert [vars(record)["reason"] for record in caplog.records] == ["No space left on device"]
    assert budget.held == 0


@pytest.mark.parametrize("kind", ["memory:", "postgresql://localhost/x"])
def test_without_a_database_of_ones_own_they_are_where_the_system_wants_them(kind: str) -> None:
    assert folder_for(kind) is None


def test_with_one_they_are_beside_it(tmp_path: Path) -> None:
    assert folder_for(f"sqlite:{tmp_path}?vfs=x") == tmp_path.resolve()

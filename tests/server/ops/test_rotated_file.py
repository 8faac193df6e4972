"""A file of lines: moved aside in time, never with half a line in its middle, whatever happens to it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from semel.server.ops.rotated_file import KEPT, LineFile, kept_name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "later" / "lines"


@contextmanager
def disk_that_ends_at(size: int) -> Iterator[None]:
    """No file of this process grows beyond the size: writes are cut short there, and then fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_nothing_is_made_before_the_first_line_and_then_for_its_owner_alone(path: Path) -> None:
    file = LineFile(path)
    assert not path.parent.exists()
    file.append(b"1\n")
    file.append(b"2\n3\n")
    file.close()
    assert path.read_bytes() == b"1\n2\n3\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_full_files_move_aside_and_five_are_kept(path: Path) -> None:
    file = LineFile(path, max_bytes=8)
    for number in range(10, 30):
        file.append(b"%d\n" % number)
    file.close()
    assert path.read_bytes() == b"28\n29\n"
    assert [kept_name(path, number).read_bytes() for number in range(1, KEPT + 1)] == [
        b"26\n27\n",
        b"24\n25\n",
        b"22\n23\n",
        b"20\n21\n",
        b"18\n19\n",
    ]
    assert not kept_name(path, KEPT + 1).exists()


def test_a_torn_last_line_is_ended_at_the_next_start(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(b"whole\nto")
    file = LineFile(path)
    file.append(b"next\n")
    file.append(b"more\n")
    file.close()
    assert path.read_bytes() == b"whole\nto\nnext\nmore\n"


def test_a_write_that_was_cut_short_is_gone_on_with(path: Path) -> None:
    file = LineFile(path, max_bytes=12)
    file.append(b"first\n")
    with disk_that_ends_at(9), pytest.raises(OSError, match="large"):
        file.append(b"line\n")
    assert (file.is_behind, path.read_bytes()) == (True, b"first\nlin")
    file.append(b"")
    assert (file.is_behind, path.read_bytes()) == (False, b"first\nline\n")
    file.append(b"next\n")
    file.close()
    assert (path.read_bytes(), kept_name(path, 1).read_bytes()) == (b"next\n", b"first\nline\n")


def test_a_line_that_was_cut_short_is_whole_in_the_file_that_follows(path: Path) -> None:
    file = LineFile(path)
    with disk_that_ends_at(3), pytest.raises(OSError, match="large"):
        file.append(b"line\nnext\n")
    path.unlink()
    file.append(b"")
    file.close()
    assert path.read_bytes() == b"line\nnext\n"


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_file_that_was_taken_away_is_made_again(path: Path, is_moved: bool) -> None:
    file = LineFile(path)
    file.append(b"1\n")
    if is_moved:
        path.rename(path.with_name("elsewhere"))
    else:
        path.unlink()
        path.parent.rmdir()
    file.append(b"2\n")
    file.close()
    assert path.read_bytes() == b"2\n"


def test_a_folder_that_is_a_file(path: Path) -> None:
    path.parent.parent.mkdir()
    path.parent.write_bytes(b"in the way")
    file = LineFile(path)
    with pytest.raises(FileExistsError):
        file.append(b"1\n")
    path.parent.unlink()
    file.append(b"")
    file.close()
    assert path.read_bytes() == b"1\n"

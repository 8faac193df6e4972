"""One function, one scope, whichever way its program was started: as a script, as a module, imported, in a child."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import multiprocessing
import sys
from pathlib import Path

from semel import Once

store = Once("receipts.db")


@store.once(key=lambda number: number)
def charge(number):
    with Path("charges").open("a") as book:
        book.write(f"{number}\\n")


def run():
    charge(7)


if __name__ == "__main__":
    if "child" in sys.argv:
        child = multiprocessing.get_context("spawn").Process(target=charge, args=(7,))
        child.start()
        child.join()
        sys.exit(child.exitcode)
    run()
"""
WAYS = {
    "script": ("shop.py",),
    "module": ("-m", "shop"),
    "imported": ("-c", "import shop; shop.run()"),
    "child of a script": ("shop.py", "child"),
    "child of a module": ("-m", "shop", "child"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_function_has_one_scope_however_its_program_was_started(tmp_path: Path, way: str) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    for words in (WAYS["imported"], WAYS[way]):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "charges").read_text() == "7\n"

"""The page of benchmarks: the tables of the newest committed runs in `bench/results`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.suite.report import Group, newest, render
from bench.suite.results import read

ROOT = Path(__file__).parent.parent


def groups_of_runs() -> Mapping[str, Group]:
    """The newest run of each group."""
    return newest(read(ROOT / "bench/results"))


def benchmark_page() -> Iterator[str]:
    """The sections of the page: what was measured where, when and how."""
    return render(groups_of_runs())

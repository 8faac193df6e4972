"""Small overviews from tables of the code: the verdicts, and the layers of the source."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from semel.kernel.verdict import Verdict

ROOT = Path(__file__).parent.parent

MEANINGS: Mapping[Verdict, tuple[str, str]] = {
    Verdict.FRESH: ("no receipt of it counts", "it runs; effect and receipt are stored in one commit"),
    Verdict.REPLAY: ("the same write took effect before", "the first answer again; nothing runs"),
    Verdict.PENDING: ("the same write is not finished", "its present state, or a wait; nothing runs"),
    Verdict.MISMATCH: ("the key stands for another content", "refused; nothing runs, the first write stays"),
    Verdict.GAP: ("its number is beyond the next one", "refused; the answer names the number that is expected"),
    Verdict.FENCED: ("a newer epoch of its writer is known", "refused; the writer must stop"),
    Verdict.REFUSED: ("a rule or a limit forbids it", "refused; nothing is stored, and the key stays free"),
}
"""What each verdict finds, and what then happens."""


def verdict_table() -> Iterator[str]:
    """The verdicts in the order of the code."""
    yield "| verdict | the write finds | what happens |"
    yield "|---|---|---|"
    for verdict in Verdict:
        finds, happens = MEANINGS[verdict]
        yield f"| `{verdict.value}` | {finds} | {happens} |"


def layers() -> Iterator[str]:
    """The layers of imports from the top, as the check of imports has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found = next(one["layers"] for one in project["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    yield "| layer | packages |"
    yield "|---|---|"
    for number, layer in enumerate(found):
        yield f"| {number + 1} | {', '.join(f'`{one}`' for one in re.split(' [|:] ', layer))} |"

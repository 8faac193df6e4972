"""Writes the tables and diagrams of the pages that are made from tables of the code: `make docs`.

A made part stands between two comments, `<!-- made: name -->` and `<!-- end -->`. What is between them is replaced,
and nothing else of a page is touched; a test fails when a page differs from what is written here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from semel.surfaces.jobs.rules.idempotency import RULES, SubmissionEffect, SubmissionRule
from semel.surfaces.jobs.rules.states import TRANSITIONS, JobState, JobTransition
from semel.surfaces.ledger.rules.idempotency import EXECUTES
from semel.surfaces.ledger.rules.idempotency import RULES as LEDGER_RULES
from semel.surfaces.ledger.rules.idempotency import WriteRule as LedgerRule

DOCS = Path(__file__).parent
PAGES = (DOCS / "reference/jobs.md", DOCS / "reference/ledger.md")

NEEDED = {
    "J8": {SubmissionEffect.JOB, SubmissionEffect.RECORD_AND_JOB, SubmissionEffect.REVIVAL},
    "J9": {SubmissionEffect.RECORD_AND_JOB},
}
"""The refusals for want of room, each with what it stands in the way of: a slot in the queue, room for a key."""

_PART = re.compile(r"(?<=^<!-- made: )([a-z ]+)( -->\n).*?(?=^<!-- end -->$)", re.MULTILINE | re.DOTALL)


def submission_table() -> Iterator[str]:
    """The rows of the submission table."""
    yield "| # | the request finds | HTTP | `status` | `dedup` | what is stored |"
    yield "|---|---|---|---|---|---|"
    for rule in RULES:
        status = "" if rule.status is None else f"`{rule.status}`"
        dedup = "" if rule.dedup is None else f"`{str(rule.dedup).lower()}`"
        yield _row(rule.name, rule.situation, str(rule.http), status, dedup, rule.effect.value)


def submission_diagram() -> Iterator[str]:
    """The same as a decision: first the key, then the room."""
    yield "```mermaid"
    yield "flowchart LR"
    yield '    submission(["a submission"]) --> key{"the key"}'
    for rule in RULES:
        if rule.name not in NEEDED:
            yield f'    key -->|"{_plain(rule.situation)}"| {_node(rule)}'
    for rule in RULES:
        if rule.name in NEEDED:
            sources = " & ".join(one.name for one in RULES if one.effect in NEEDED[rule.name])
            yield f'    {sources} -.->|"{_plain(rule.situation)}"| {_node(rule)}'
    yield "```"


def state_table() -> Iterator[str]:
    """The rows of the table of states."""
    yield "| from | event | if | to | `reason` |"
    yield "|---|---|---|---|---|"
    for row in TRANSITIONS:
        source = f"`{row.source.value}`" if row.source is not JobState.NONE else "-"
        reason = "" if row.reason is None else f"`{row.reason.value}`"
        yield _row(source, row.event.value, row.guard.value, f"`{row.target.value}`", reason)


def state_diagram() -> Iterator[str]:
    """The same as a picture; what leads from one state to the same other one shares an arrow."""
    arrows: dict[tuple[JobState, JobState], list[str]] = {}
    for row in TRANSITIONS:
        arrows.setdefault((row.source, row.target), []).append(_cause(row))
    sources = {row.source for row in TRANSITIONS}
    ends = [state for state in JobState if state is not JobState.NONE and state not in sources]
    yield "```mermaid"
    yield "stateDiagram-v2"
    for (source, target), causes in arrows.items():
        yield f"    {source.value or '[*]'} --> {target.value}: {'<br/>'.join(causes)}"
    for state in ends:
        yield f"    {state.value} --> [*]"
    yield "```"


def ledger_table() -> Iterator[str]:
    """The rows of the table that judges a write to the ledger."""
    yield "| # | key | sequence | operations | answer | what is taken |"
    yield "|---|---|---|---|---|---|"
    for rule in LEDGER_RULES:
        taken = "a sequence, a block, the key if there is one" if rule.verdict in EXECUTES else "nothing"
        yield _row(rule.row, rule.key, rule.sequence, rule.operations, rule.verdict.value, taken)


def ledger_diagram() -> Iterator[str]:
    """The same as a decision: first the key, then the sequence and the operations."""
    keys = list(dict.fromkeys(rule.key for rule in LEDGER_RULES))
    yield "```mermaid"
    yield "flowchart LR"
    yield '    write(["a write"])'
    for number, key in enumerate(keys):
        yield f'    write -->|"key {key}"| k{number}(( ))'
        for place, rule in enumerate(LEDGER_RULES):
            if rule.key == key:
                yield f'    k{number} -->|"{_asked(rule)}"| a{place}["{rule.row}: {rule.verdict.value}"]'
    yield "```"


PARTS: Mapping[str, Callable[[], Iterator[str]]] = {
    "submission table": submission_table,
    "submission diagram": submission_diagram,
    "state table": state_table,
    "state diagram": state_diagram,
    "ledger rules": ledger_table,
    "ledger diagram": ledger_diagram,
}


def rewritten(text: str) -> str:
    """A page with its made parts as they should be; a part of an unknown name is a mistake."""

    def made(found: re.Match[str]) -> str:
        lines = "\n".join(PARTS[found[1]]())
        return f"{found[1]}{found[2]}\n{lines}\n\n"

    return _PART.sub(made, text)


def parts_of(text: str) -> list[str]:
    """The names of a page's made parts."""
    return [found[1] for found in _PART.finditer(text)]


def _row(*cells: str) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def _node(rule: SubmissionRule) -> str:
    answer = f"{rule.name}: {rule.http}" + (f" {rule.status}" if rule.status else "")
    stored = "" if rule.effect is SubmissionEffect.NOTHING else f"<br/>{rule.effect.value}"
    return f'{rule.name}["{answer}{stored}"]'


def _cause(row: JobTransition) -> str:
    cause = f"{row.event.value}, {row.guard.value}" if row.guard.value else row.event.value
    return cause if row.reason is None else f"{cause} ({row.reason.value})"


def _asked(rule: LedgerRule) -> str:
    """What a row asks of sequence and operations; nothing when it takes any."""
    asked = {"sequence": rule.sequence, "operations": rule.operations}
    return "; ".join(f"{name} {words}" for name, words in asked.items() if words != "any") or "any"


def _plain(text: str) -> str:
    return text.replace("`", "")


def main() -> None:
    """Write the pages."""
    for page in PAGES:
        page.write_text(rewritten(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()

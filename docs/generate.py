"""Writes the parts of the documentation that are generated from the code: `make docs`.

A part is between two comments, `<!-- made: name -->` and `<!-- end -->`. What is between them is replaced, and nothing
else of the page. A test fails when a page differs from what is generated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from textwrap import wrap

from docs.benchmarks import benchmark_table
from docs.commands import command_sections, shared_options
from docs.comparison import crash_table, redis_share
from docs.compatibility import driver_table, refusal_table, server_table
from docs.errors import error_tables
from docs.limits import limit_tables
from docs.metrics import json_names, metric_table
from docs.operations import operation_tables
from docs.overviews import layers, verdict_table
from docs.protocol_buffers import grpc_messages, grpc_services
from docs.python_api import client_reference, error_reference, once_reference
from docs.readme import first_example, promises
from docs.settings import settings_aliases, settings_tables
from docs.site.navigation import page_list
from semel.surfaces.jobs.rules.idempotency import RULES
from semel.surfaces.jobs.rules.states import TRANSITIONS, JobEvent, JobState
from semel.surfaces.ledger.rules.idempotency import EXECUTES
from semel.surfaces.ledger.rules.idempotency import RULES as LEDGER_RULES

DOCS = Path(__file__).parent
PAGES = tuple(
    DOCS / f"{name}.md"
    for name in (
        *("index", "concepts", "comparison", "once/transaction", "internals/architecture"),
        *(
            f"reference/{name}"
            for name in ("cli", "errors", "grpc", "http", "jobs", "ledger", "metrics", "python", "settings")
        ),
    )
)
"""The pages that have generated parts."""

WIDTH = 120
"""Characters in a line of prose."""
_PART = re.compile(r"(?<=^<!-- made: )([a-z ]+)( -->\n).*?(?=^<!-- end -->$)", re.MULTILINE | re.DOTALL)


def submission_table() -> Iterator[str]:
    """The rows of the submission table."""
    yield "| # | the request finds | HTTP | `status` | `dedup` | what is stored |"
    yield "|---|---|---|---|---|---|"
    for rule in RULES:
        status = "" if rule.status is None else f"`{rule.status}`"
        dedup = "" if rule.dedup is None else f"`{str(rule.dedup).lower()}`"
        yield _row(rule.name, rule.situation, str(rule.http), status, dedup, rule.effect.value)


def state_table() -> Iterator[str]:
    """The rows of the table of states."""
    yield "| from | event | if | to | `reason` |"
    yield "|---|---|---|---|---|"
    for row in TRANSITIONS:
        source = f"`{row.source.value}`" if row.source is not JobState.NONE else "-"
        reason = "" if row.reason is None else f"`{row.reason.value}`"
        yield _row(source, row.event.value, row.guard.value, f"`{row.target.value}`", reason)


USUAL = {
    JobEvent.SUBMIT, JobEvent.SUBMIT_DELAYED, JobEvent.TIME, JobEvent.CLAIM, JobEvent.COMPLETE, JobEvent.FAIL,
    JobEvent.LEASE_ENDED, JobEvent.CANCEL, JobEvent.REVIVE,
}  # fmt: skip
"""The events that a reader meets first; the table of the reference has all of them."""


def state_overview() -> Iterator[str]:
    """The states with the usual events alone, for a reader who meets them first."""
    arrows: dict[tuple[JobState, JobState], list[str]] = {}
    for row in TRANSITIONS:
        if row.event not in USUAL:
            continue
        events = arrows.setdefault((row.source, row.target), [])
        events += [row.event.value] if row.event.value not in events else []
    yield "| from | event | to |"
    yield "|---|---|---|"
    for (source, target), events in arrows.items():
        yield _row(f"`{source.value}`" if source.value else "-", ", ".join(events), f"`{target.value}`")


def ledger_table() -> Iterator[str]:
    """The rows of the table that judges a write to the ledger."""
    yield "| # | key | sequence | operations | answer | what is taken |"
    yield "|---|---|---|---|---|---|"
    for rule in LEDGER_RULES:
        taken = "a sequence, a block, the key if there is one" if rule.verdict in EXECUTES else "nothing"
        yield _row(rule.row, rule.key, rule.sequence, rule.operations, rule.verdict.value, taken)


PARTS: Mapping[str, Callable[[], Iterator[str]]] = {
    "submission table": submission_table,
    "state table": state_table,
    "state overview": state_overview,
    "verdicts": verdict_table,
    "layers": layers,
    "benchmarks": benchmark_table,
    "crash table": crash_table,
    "compatible drivers": driver_table,
    "compatible servers": server_table,
    "refused combinations": refusal_table,
    "redis share": redis_share,
    "ledger rules": ledger_table,
    "operations": operation_tables,
    "settings": settings_tables,
    "settings aliases": settings_aliases,
    "limits": limit_tables,
    "errors": error_tables,
    "metrics": metric_table,
    "metrics in json": json_names,
    "first example": first_example,
    "promises": promises,
    "page list": page_list,
    "shared options": shared_options,
    **command_sections(),
    "grpc services": grpc_services,
    "grpc messages": grpc_messages,
    "once names": once_reference,
    "client names": client_reference,
    "client errors": error_reference,
}


def rewritten(text: str) -> str:
    """A page with its made parts as they should be; a part of an unknown name is a mistake."""

    def made(found: re.Match[str]) -> str:
        lines = "\n".join(line for one in PARTS[found[1]]() for line in _wrapped(one))
        return f"{found[1]}{found[2]}\n{lines}\n\n"

    return _PART.sub(made, text)


def _wrapped(text: str) -> Iterator[str]:
    """Lines with prose of at most `WIDTH` characters; tables, headings, code and signatures are as long as they are."""
    for line in text.split("\n"):
        if len(line) <= WIDTH or line.startswith(("|", "#", "`", "- `", " ")):
            yield line
        else:
            indent = "  " if line.startswith("- ") else ""
            yield from wrap(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def parts_of(text: str) -> list[str]:
    """The names of a page's made parts."""
    return [found[1] for found in _PART.finditer(text)]


def _row(*cells: str) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def main() -> None:
    """Write the pages."""
    for page in PAGES:
        page.write_text(rewritten(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()

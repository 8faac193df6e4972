"""Writes the parts of the documentation that are generated from the code: `make docs`.

- Tables are between two comments, `<!-- made: name -->` and `<!-- end -->`. What is between them is
  replaced, and nothing else of the page.
- The page of limits has its words from its authors, and the first number of each row from the code.

A test fails when a page differs from what is generated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any

from docs.benchmarks import benchmark_page
from docs.commands import command_tables
from docs.comparison import crash_table, redis_share
from docs.compatibility import driver_table, refusal_table, server_table
from docs.limits import CONSTANTS
from docs.metrics import metric_table
from docs.operations import operation_tables
from docs.overviews import layers, verdict_table
from docs.protocol_buffers import grpc_messages, grpc_services
from docs.python_api import client_reference, error_reference, once_reference
from docs.readme import first_example, promises
from docs.site.navigation import page_list
from semel.server.setting_values import MANY, is_secret
from semel.server.settings_loader import ALIASES, PREFIX, setting_fields, setting_sections
from semel.surfaces.jobs.rules.idempotency import RULES
from semel.surfaces.jobs.rules.states import TRANSITIONS, JobEvent, JobState
from semel.surfaces.ledger.rules.idempotency import EXECUTES
from semel.surfaces.ledger.rules.idempotency import RULES as LEDGER_RULES
from semel.surfaces.registry import SURFACES

DOCS = Path(__file__).parent
PAGES = (
    *(
        DOCS / f"reference/{name}.md"
        for name in ("commands", "grpc", "jobs", "ledger", "openapi", "python", "settings")
    ),
    DOCS / "operating/metrics.md",
    DOCS / "benchmarks.md",
    DOCS / "once/comparison.md",
    DOCS / "once/compatibility.md",
    DOCS / "index.md",
    DOCS / "concepts/verdicts.md",
    DOCS / "internals/architecture.md",
)
LIMITS = DOCS / "reference/limits.md"

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


def settings_tables() -> Iterator[str]:
    """A table for each heading of the server and for each surface of the registry, as in `semel serve --help`."""
    about = {surface.name.capitalize(): surface.about for surface in SURFACES}
    for number, (heading, listed) in enumerate(setting_sections().items()):
        yield from ([""] if number else [])
        yield from (f"## {heading}", "")
        if heading in about:
            yield from (f"{about[heading]}.", "")
        yield from _settings_table(listed)


def settings_aliases() -> Iterator[str]:
    """The other variables of settings."""
    yield "| variable | also |"
    yield "|---|---|"
    for name, aliases in ALIASES.items():
        yield _row(f"`{PREFIX}{name.upper()}`", ", ".join(f"`{alias}`" for alias in aliases))


def _settings_table(listed: Iterable[Field[Any]]) -> Iterator[str]:
    yield "| variable | flag | TOML | default | meaning |"
    yield "|---|---|---|---|---|"
    for one in listed:
        flag = "none" if is_secret(one) else f"`--{one.name.replace('_', '-')}`"
        meaning = f"{one.metadata['about']}{_range_of(one)}"
        yield _row(f"`{PREFIX}{one.name.upper()}`", flag, f"`{one.name}`", _default(one), meaning)


def _default(one: Field[Any]) -> str:
    """A default as TOML has it, and in a larger unit where there is one."""
    if one.default == "":
        return "(empty)"
    text = str(one.default).lower() if isinstance(one.default, bool) else str(one.default)
    larger = _larger_unit(one.name, one.default) if isinstance(one.default, int | float) else ""
    return f"`{text}`" + (f" ({larger})" if larger else "")


UNITS = {
    "_bytes": ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")),
    "_ms": ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")),
    "_sec": ((86_400, "days"), (3_600, "h"), (60, "min")),
}
"""Units that the end of a setting's name stands for, the largest first."""


def _larger_unit(name: str, value: float) -> str:
    units = next((units for end, units in UNITS.items() if name.endswith(end)), ())
    return next((f"{int(value // size)} {unit}" for size, unit in units if value >= size and value % size == 0), "")


def _range_of(one: Field[Any]) -> str:
    """The bounds of a number; empty where they say nothing."""
    least, most = one.metadata.get("least"), one.metadata.get("most")
    if most is not None and most < MANY:
        return f" ({least} to {most})"
    return f" (at least {least})" if least is not None and least > 1 else ""


PARTS: Mapping[str, Callable[[], Iterator[str]]] = {
    "submission table": submission_table,
    "state table": state_table,
    "state overview": state_overview,
    "verdicts": verdict_table,
    "layers": layers,
    "benchmarks": benchmark_page,
    "crash table": crash_table,
    "compatible drivers": driver_table,
    "compatible servers": server_table,
    "refused combinations": refusal_table,
    "redis share": redis_share,
    "ledger rules": ledger_table,
    "operations": operation_tables,
    "settings": settings_tables,
    "settings aliases": settings_aliases,
    "metrics": metric_table,
    "first example": first_example,
    "promises": promises,
    "page list": page_list,
    "commands": command_tables,
    "grpc services": grpc_services,
    "grpc messages": grpc_messages,
    "once names": once_reference,
    "client names": client_reference,
    "client errors": error_reference,
}


def rewritten(text: str) -> str:
    """A page with its made parts as they should be; a part of an unknown name is a mistake."""

    def made(found: re.Match[str]) -> str:
        lines = "\n".join(PARTS[found[1]]())
        return f"{found[1]}{found[2]}\n{lines}\n\n"

    return _PART.sub(made, text)


_LIMIT = re.compile(r"^\| (?P<name>[^|]+) \| `(?P<value>[0-9.]+)`(?P<unit>[^|]*)\|(?P<setting>[^|]*)\|", re.MULTILINE)


def with_limits(text: str) -> str:
    """The page of limits with the numbers of the code; a row without a constant or a setting is a mistake."""
    defaults = {PREFIX + one.name.upper(): one.default for one in setting_fields()}

    def filled(found: re.Match[str]) -> str:
        name, setting = found["name"], found["setting"].strip().strip("`")
        value = CONSTANTS[name] if name in CONSTANTS else defaults[setting]
        shown = found["value"] if float(found["value"]) == value else str(value)
        return f"| {name} | `{shown}`{found['unit']}|{found['setting']}|"

    return _LIMIT.sub(filled, text)


def limit_names(text: str) -> list[str]:
    """The limits whose numbers are generated."""
    return [found["name"] for found in _LIMIT.finditer(text)]


def parts_of(text: str) -> list[str]:
    """The names of a page's made parts."""
    return [found[1] for found in _PART.finditer(text)]


def _row(*cells: str) -> str:
    return "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"


def main() -> None:
    """Write the pages."""
    for page in PAGES:
        page.write_text(rewritten(page.read_text("utf-8")), "utf-8")
    LIMITS.write_text(with_limits(LIMITS.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()

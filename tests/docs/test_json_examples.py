"""Each example of JSON in the pages is what a real server takes, answers, or writes to its files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from docs.site.stage import DOCS, ROOT
from tests.docs import example_calls as calls
from tests.docs.example_calls import example, of_page
from tests.docs.example_site import ExampleSite
from tests.docs.terminal import commands

INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
OFFSET = r"\d{16}_\d{16}"
ADDRESS = r"[\d.]+"
JOB_ID = r"job_[0-9a-f]{32}"
LEFT_OUT = "..."
ELSEWHERE = {"docs/guide/events.md": "tests/docs/test_events_guide.py"}
"""Pages whose frames are sent in their order by a test of their own."""


class Example(NamedTuple):
    """One block, by a part of it; what makes the real one; and members that differ from run to run."""

    page: str
    part: str
    real: Callable[[ExampleSite, Any], Any]
    free: Mapping[str, str]


EXAMPLES = (
    Example(
        "docs/operating/audit.md",
        '"event":"AUTH_FAILURE"',
        calls.audit_line,
        {"ts": INSTANT, "remote_addr": ADDRESS},
    ),
    Example("docs/operating/audit.md", '"event":"BURST_AUTH_FAILURE"', calls.alert, {}),
    Example(
        "docs/operating/find-a-write.md",
        '"id": "invoice-4711"',
        calls.found_write,
        {
            "at": INSTANT,
            "path": f"/v1/jobs/{JOB_ID}",
            "job_id": JOB_ID,
            "request_id": r"[0-9a-f-]{36}",
            "finished_at": INSTANT,
            "expires_at": INSTANT,
            "address": ADDRESS,
        },
    ),
    Example(
        "docs/operating/running.md",
        '"status":"not_ready"',
        calls.not_ready,
        {"found": r"the disk of the database has [\d,]+ bytes free, fewer than [\d,]+"},
    ),
    Example(
        "docs/operating/running.md",
        '"logger":"semel.server"',
        calls.last_line_of_the_log,
        {"ts": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00"},
    ),
    Example(
        "docs/operating/running.md",
        '"route":"/v1/stream/{}"',
        calls.access_line,
        {
            "ts": INSTANT,
            "bytes": r"\d+",
            "seconds": r"\d+\.\d+(?:e-\d+)?",
            "remote": ADDRESS,
            "request_id": r"[0-9a-f]{12}-[0-9a-f]+",
        },
    ),
    Example(
        "docs/reference/http.md",
        '"forked_from": null',
        calls.listed_stream,
        {"next_offset": OFFSET, "created_ms": r"1\d{12}", "updated_ms": r"1\d{12}"},
    ),
    Example("docs/reference/http.md", '{"producers"', calls.listed_producers, {}),
    Example("docs/reference/jobs.md", '"error": "lease_lost"', calls.lost_lease, {"job_id": JOB_ID}),
    Example("docs/reference/ledger.md", '"error_code": "3203"', calls.refused_client, {}),
    Example("docs/reference/deltas.md", '{"rows": [', calls.merged_rows, {}),
    Example("docs/reference/deltas.md", '{"op": "INSERT"', calls.one_delta, {}),
    Example("docs/reference/deltas.md", '"name": "shared"', calls.sync_rules, {}),
    Example("docs/guide/deltas.md", '"name": "lists"', calls.sync_rules, {}),
    Example("docs/guide/ledger.md", '{"transactions": [', calls.bulk_request, {}),
    Example("docs/guide/ledger.md", '{"results": [', calls.many_transactions, {"id": r"[A-Za-z0-9+/]{22}=="}),
    Example("docs/guide/streams.md", '{"type":"/errors/idempotency-mismatch"', calls.reused_key, {}),
    Example(
        "docs/guide/streams.md",
        '{"subscription_id": "billing"',
        calls.webhook,
        {
            "wake_id": r"[0-9a-f-]{32,36}",
            "generation": r"\d+",
            "tail_offset": OFFSET,
            "callback_url": r"https?://[\w.:]+/v1/stream/__ds/subscriptions/billing/callback",
            "callback_token": r"[\w.-]+",
        },
    ),
)


def differences(shown: Any, real: Any, free: Mapping[str, str], path: str = "") -> list[str]:
    """Where an answer is not the one that is shown.

    `free` has members that differ from run to run, with the pattern that both values must have. A string that ends with
    `...` is shown by its beginning, and a member `...` stands for members that are not shown.
    """
    name = path.rpartition("/")[2]
    if type(shown) is not type(real):
        return [f"{path}: {shown!r} is shown, and it is {real!r}"]
    if isinstance(shown, dict):
        left_out = LEFT_OUT in shown
        names = shown.keys() - {LEFT_OUT}
        unlike = [f"{path}/{one}: shown, and not there" for one in sorted(names - real.keys())]
        unlike += [f"{path}/{one}: there, and not shown" for one in sorted(real.keys() - names) if not left_out]
        pairs = [(one, shown[one], real[one]) for one in names & real.keys()]
        return unlike + [text for one, left, right in pairs for text in differences(left, right, free, f"{path}/{one}")]
    if isinstance(shown, list):
        if len(shown) != len(real):
            return [f"{path}: {len(shown)} are shown, and there are {len(real)}"]
        return [text for left, right in zip(shown, real, strict=True) for text in differences(left, right, free, path)]
    if name in free:
        told = [json.dumps(one).strip('"') for one in (shown, real)]
        is_cut = isinstance(shown, str) and re.search(r"\.\.\.|…", shown)
        wrong = [one for one in told[bool(is_cut) :] if not re.fullmatch(free[name], one)]
        return [f"{path}: {one} is not of the form {free[name]}" for one in wrong]
    is_cut = isinstance(shown, str) and shown.endswith(LEFT_OUT) and real.startswith(shown.removesuffix(LEFT_OUT))
    return [] if is_cut or shown == real else [f"{path}: {shown!r} is shown, and it is {real!r}"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExampleSite]:
    made = ExampleSite(tmp_path_factory.mktemp("examples"))
    with made.server:
        yield made


@pytest.mark.parametrize("one", EXAMPLES, ids=lambda one: f"{Path(one.page).stem}: {one.part[:40]}")
def test_an_example_is_what_the_server_says(one: Example, site: ExampleSite) -> None:
    shown = example(one.page, one.part)
    assert differences(shown, one.real(site, shown), one.free) == []


def test_find_prints_the_life_of_the_write_that_is_shown(site: ExampleSite) -> None:
    """A write like that of the JSON below it; what differs from run to run has the form that is shown."""
    first, second = commands((DOCS / "operating/find-a-write.md").read_text("utf-8"))
    shown, own = example("docs/operating/find-a-write.md", '"id": "invoice-4711"'), "invoice-4712"
    calls.found_write(site, shown | {"id": own})

    def form(text: str) -> str:
        known = {INSTANT: "INSTANT", r"job_(?:[0-9a-f]{32}|019a…)": "JOB", r"\d+\.\d+\.\d+\.\d+": "ADDRESS"}
        for pattern, word in known.items():
            text = re.sub(pattern, word, text)
        return text.strip()

    assert form(calls.find_it(site, first.line.replace(shown["id"], own))) == form(first.shown)
    site.sent("PUT", "/v1/stream/orders/2026")
    site.sent("POST", "/v1/stream/orders/2026", {}, idempotency_key="order-1")
    [write] = json.loads(calls.find_it(site, second.line))["writes"]
    assert (write["surface"], write["in"]) == ("streams", "orders/2026")


def test_every_block_of_json_is_one_example() -> None:
    left = []
    for page in (str(path.relative_to(ROOT)) for path in sorted(DOCS.rglob("*.md"))):
        if page in ELSEWHERE:
            assert 'blocks("json")' in (ROOT / ELSEWHERE[page]).read_text("utf-8")
            continue
        parts = [one.part for one in EXAMPLES if one.page == page]
        counts = [sum(part in block.text for part in parts) for block in of_page(page)]
        left += [f"{page}:{block.line}" for block, count in zip(of_page(page), counts, strict=True) if count != 1]
    assert left == []


REAL = {"id": "a1", "at": "2026-11-18T09:12:44.107Z", "list": [{"n": 1}], "whole": "abcdef"}


@pytest.mark.parametrize(
    ("change", "count"),
    [
        ({}, 0),
        ({"at": "2025-01-01T00:00:00.000Z", "whole": "abc..."}, 0),
        ({"at": "2025-01-01T00:00:00Z"}, 1),
        ({"id": 1}, 1),
        ({"id": "a2"}, 1),
        ({"list": []}, 1),
        ({"list": [{"n": True}]}, 1),
        ({"whole": "bc..."}, 1),
        ({"more": 1}, 1),
    ],
)
def test_what_is_shown_wrong_is_noticed(change: dict[str, Any], count: int) -> None:
    assert len(differences(REAL | change, REAL, {"at": INSTANT})) == count
    assert len(differences(REAL, REAL | {"more": 1}, {"at": INSTANT})) == 1

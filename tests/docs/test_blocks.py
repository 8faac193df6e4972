"""Every block of code in every page is run, or read by its tool, or stands in a list with the reason why not."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import textwrap
import tomllib
from pathlib import Path

import pytest
import yaml

from docs.site.stage import DOCS, ROOT
from tests.docs.fragments import FRAGMENTS
from tests.docs.reader import Block, blocks
from tests.docs.test_followed_pages import FOLLOWED

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))

RUN_BY = {
    "README.md": {"console": "tests/docs/test_readme.py"},
    "docs/guide/celery.md": {"python": "tests/docs/test_celery_guide.py", "console": "tests/docs/test_celery_guide.py"},
    "docs/guide/clients.md": {"python": "tests/docs/test_clients_guide.py"},
    "docs/guide/deltas.md": {"python": "tests/docs/test_deltas_guide.py", "console": "tests/docs/test_deltas_guide.py"},
    "docs/guide/events.md": {
        "python": "tests/docs/test_events_client_guide.py",
        "console": "tests/docs/test_events_guide.py",
    },
    "docs/guide/jobs.md": {"python": "tests/docs/test_jobs_guide.py", "console": "tests/docs/test_jobs_guide.py"},
    "docs/guide/ledger.md": {"python": "tests/docs/test_ledger_guide.py", "console": "tests/docs/test_ledger_guide.py"},
    "docs/guide/replicas.md": {
        "python": "tests/docs/test_replicas_guide.py",
        "console": "tests/docs/test_replicas_guide.py",
    },
    "docs/guide/streams.md": {"python": "tests/docs/test_streams_guide.py"},
    "docs/guide/workers.md": {"console": "tests/docs/test_workers_guide.py"},
    "docs/once/proxy.md": {"python": "tests/proxy/test_guide.py"},
    "docs/once/recipes.md": {"python": "tests/recipes/place.py"},
    "docs/once/tutorial.md": {
        "python": "tests/docs/test_once_tutorial.py",
        "console": "tests/docs/test_once_tutorial.py",
    },
    "docs/operating/credentials.md": {"python": "tests/server/auth/test_credentials.py"},
}
"""The test that runs the blocks of a page, by their language."""

NOT_RUN = {
    ("docs/index.md", "def place_order("): "it is the block of the README, generated, and runs there",
    ("docs/guide/workers.md", "A worker that bills orders"): "it is examples/worker.py, which is run",
    ("docs/once/middleware.md", "from semel.once.django"): "a view of a Django project; docs/howto/django.md runs one",
    ("docs/once/outbox.md", 'box = Outbox("outbox.db")'): "tests/docs/test_outbox_guide.py runs it with a service",
    (
        "docs/once/testing.md",
        "# test_charge.py",
    ): "tests/testing/test_guide.py runs it as a file of tests",
    ("docs/once/testing.md", "frozen_clock"): "a test of the reader with `...` for its own code; parsed here",
    ("docs/once/transaction.md", 'psycopg.connect("postgresql://localhost/shop")'): "it names the reader's database",
}
"""Blocks of Python that no test runs, by their page and a part of them; each is parsed."""


def of(language: str) -> list[tuple[str, Block]]:
    """All blocks of a language, with their pages."""
    return [
        (str(page.relative_to(ROOT)), block)
        for page in PAGES
        for block in blocks(page.read_text("utf-8"))
        if block.language == language
    ]


def how_it_runs(page: str, block: Block) -> str | None:
    """What runs a block of Python; None if nothing does."""
    if page.removeprefix("docs/") in FOLLOWED:
        return "tests/docs/test_followed_pages.py"
    if any(one.page == page and one.line in block.text for one in FRAGMENTS):
        return "tests/docs/test_fragments.py"
    for (where, part), reason in NOT_RUN.items():
        if where == page and part in block.text:
            return reason
    return RUN_BY.get(page, {}).get("python")


def test_every_block_of_python_is_run_or_says_why_not() -> None:
    assert [f"{page}:{block.line}" for page, block in of("python") if how_it_runs(page, block) is None] == []


def test_a_block_of_python_that_nothing_runs_is_noticed() -> None:
    assert how_it_runs("docs/operating/running.md", Block("python", "print(1)\n", 1)) is None


def test_no_reason_is_left_for_a_block_that_is_gone() -> None:
    pages = {page: (ROOT / page).read_text("utf-8") for page, _ in NOT_RUN}
    assert [part for page, part in NOT_RUN if part not in pages[page]] == []


def test_the_tests_that_run_pages_name_them() -> None:
    for page, tests in RUN_BY.items():
        for test in tests.values():
            assert Path(page).stem in (ROOT / test).read_text("utf-8"), (page, test)


def test_python_can_be_parsed() -> None:
    for page, block in of("python"):
        code = block.text
        try:
            ast.parse(code)
        except SyntaxError:  # the body of a function: `return`, `await`
            ast.parse("async def body():\n" + textwrap.indent(code, "    "), f"{page}:{block.line}")


def test_json_can_be_parsed_with_what_is_left_out() -> None:
    for page, block in of("json"):
        whole = re.sub(r",?\s*\.\.\.(?=\s*[}\]])", "", block.text)
        for part in [whole] if _is_json(whole) else whole.strip().splitlines():
            assert _is_json(part), f"{page}:{block.line}"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_toml_and_yaml_can_be_parsed() -> None:
    for _, block in of("toml"):
        tomllib.loads(block.text)
    for _, block in of("yaml"):
        assert yaml.safe_load(block.text)


@pytest.mark.parametrize("language", ["sh", "console"])
def test_commands_are_good_shell(language: str) -> None:
    """Every command can be read by a shell; those of `semel` are also parsed by their own options, in test_docs.py."""
    for page, block in of(language):
        lines = re.findall(r"^\$ ((?:.*\\\n)*.*)$", block.text, re.M) if language == "console" else [block.text]
        for line in lines:
            done = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{page}:{block.line}: {line}: {done.stderr}"

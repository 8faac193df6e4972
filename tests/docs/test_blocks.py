"""Every block of code in every page is run, or read by its tool, or stands in a list with the reason why not."""

from __future__ import annotations

import ast
import re
import subprocess
import textwrap
from pathlib import Path

from docs.site.stage import DOCS, ROOT
from tests.docs.fragments import FRAGMENTS
from tests.docs.not_run import PAGES as COMMANDS_NOT_RUN
from tests.docs.not_run import REASONS, reason_not_to_run
from tests.docs.operating_scenes import PAGES as OPERATED
from tests.docs.reader import Block, blocks
from tests.docs.test_file_examples import READ as FILES_READ
from tests.docs.test_followed_pages import FOLLOWED
from tests.docs.test_frame_examples import READ as FRAMES_READ

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))

RUN_BY = {
    "docs/index.md": {"python": "tests/once/test_readme.py", "console": "tests/once/test_readme.py"},
    "README.md": {"python": "tests/once/test_readme.py", "console": "tests/docs/test_readme.py"},
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
    "docs/guide/streams.md": {
        "python": "tests/docs/test_streams_guide.py",
        "console": "tests/docs/test_streams_commands.py",
    },
    "docs/guide/workers.md": {"console": "tests/docs/test_workers_guide.py"},
    "docs/once/proxy.md": {"python": "tests/proxy/test_guide.py", "console": "tests/docs/test_proxy_commands.py"},
    "docs/once/recipes.md": {"python": "tests/recipes/place.py"},
    "docs/once/testing.md": {"python": "tests/testing/test_guide.py"},
    "docs/once/tutorial.md": {
        "python": "tests/docs/test_once_tutorial.py",
        "console": "tests/docs/test_once_tutorial.py",
    },
    "docs/reference/cli.md": {"console": "tests/docs/test_command_reference.py"},
    "docs/operating/audit.md": {"console": "tests/docs/test_audit_commands.py"},
    "docs/operating/credentials.md": {
        "python": "tests/server/auth/test_credentials.py",
        "console": "tests/docs/test_credentials_commands.py",
    },
    "docs/operating/find-a-write.md": {"console": "tests/docs/test_json_examples.py"},
    "docs/reference/http.md": {"console": "tests/docs/test_frame_examples.py"},
}
RUN_BY |= {f"docs/operating/{name}": {"console": "tests/docs/operating_scenes.py"} for name in OPERATED}
"""The test that runs the blocks of a page, by their language."""

NOT_RUN = {
    ("docs/guide/workers.md", "A worker that bills orders"): "it is examples/worker.py, which is run",
    ("docs/once/outbox.md", 'box = Outbox("outbox.db")'): "tests/docs/test_outbox_guide.py runs it with a service",
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


READ_BY = {
    "json": "tests/docs/test_json_examples.py",
    "python": "test_every_block_of_python_is_run_or_says_why_not",
    "console": "test_every_command_is_run_or_says_why_not",
}
"""What runs or reads the blocks of a language."""

ELSEWHERE = {
    ("docs/guide/events.md", "import { createBrowserWebSocketTransport"): "tests/events/insieme runs this client",
    ("docs/guide/jobs.md", "one job: True"): "tests/docs/test_jobs_guide.py compares what its program prints",
    ("docs/guide/replicas.md", "SELECT row_id"): "tests/docs/test_replicas_guide.py sends it to the file of a replica",
    ("docs/once/testing.md", "is not idempotent"): "tests/testing/test_guide.py compares what pytest prints",
    ("docs/once/recipes.md", "CREATE TABLE charges"): "tests/recipes/place.py makes this table",
    ("docs/operating/scaling.md", "writes/s ="): "a formula",
}
"""Blocks of the other languages that no test of a language reads, by page and a part of them."""


def test_every_block_of_any_language_is_run_read_or_listed() -> None:
    places = {*FILES_READ, *FRAMES_READ, *ELSEWHERE}
    left = [
        f"{page.relative_to(ROOT)}:{block.line} {block.language}"
        for page in PAGES
        for block in blocks(page.read_text("utf-8"))
        if block.language not in READ_BY
        and not any(str(page.relative_to(ROOT)) == where and part in block.text for where, part in places)
    ]
    assert left == []


def test_every_fence_is_a_block_that_the_tests_see() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        assert len(re.findall(r"^ *```", text, re.MULTILINE)) == 2 * len(list(blocks(text))), page


def test_every_command_is_run_or_says_why_not() -> None:
    left = []
    for page, block in of("console"):
        if page.removeprefix("docs/") in FOLLOWED or "console" in RUN_BY.get(page, {}):
            continue
        lines = re.findall(r"^\$ ((?:.*\\\n)*.*)$", block.text, re.M)
        left += [f"{page}:{block.line}: {line}" for line in lines if reason_not_to_run(page, line) is None]
    assert left == []


def test_the_tests_that_reasons_name_exist() -> None:
    reasons = [*REASONS.values(), *ELSEWHERE.values(), *NOT_RUN.values(), *READ_BY.values()]
    reasons += [reason for listed in COMMANDS_NOT_RUN.values() for reason in listed.values()]
    named = {path for reason in reasons for path in re.findall(r"tests/[\w/]*\w(?:\.py)?", reason)}
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_a_test_that_a_reason_names_has_the_words_of_the_command() -> None:
    left = []
    for page, listed in COMMANDS_NOT_RUN.items():
        for pattern, reason in listed.items():
            files = [ROOT / path for path in re.findall(r"tests/[\w/]+\.py", reason)]
            words = set(re.findall(r"[a-z]{3,}", pattern)) - {"python"}
            left += [f"{page}: {word}" for word in words for file in files if word not in file.read_text("utf-8")]
    assert left == []


def test_no_reason_is_left_for_a_command_that_is_gone() -> None:
    left = []
    for page, listed in COMMANDS_NOT_RUN.items():
        lines = re.findall(r"^\s*\$ (.*)$", (ROOT / page).read_text("utf-8"), re.M)
        left += [f"{page}: {pattern}" for pattern in listed if not any(re.match(pattern, line) for line in lines)]
    assert left == []


def test_a_command_that_no_list_has_is_noticed() -> None:
    assert reason_not_to_run("docs/operating/running.md", "semel streams ls") is None


def test_every_block_of_python_is_run_or_says_why_not() -> None:
    assert [f"{page}:{block.line}" for page, block in of("python") if how_it_runs(page, block) is None] == []


def test_a_block_of_python_that_nothing_runs_is_noticed() -> None:
    assert how_it_runs("docs/operating/running.md", Block("python", "print(1)\n", 1)) is None


def test_no_reason_is_left_for_a_block_that_is_gone() -> None:
    places = [*NOT_RUN, *ELSEWHERE]
    assert [part for page, part in places if part not in (ROOT / page).read_text("utf-8")] == []


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


def test_commands_are_good_shell() -> None:
    """Every command can be read by a shell; those of `semel` are also parsed by their own options, in test_docs.py."""
    for page, block in of("console"):
        for line in re.findall(r"^\$ ((?:.*\\\n)*.*)$", block.text, re.M):
            done = subprocess.run(["bash", "-n", "-c", line], capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{page}:{block.line}: {line}: {done.stderr}"

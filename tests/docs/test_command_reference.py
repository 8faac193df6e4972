"""The commands of the reference, typed in their order beside a real server, succeed; those that are not say why."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.command_scenes import (
    BEFORE,
    DATABASE,
    FILES,
    JOB,
    NOT_TYPED,
    ORG,
    REQUEST,
    SCENES,
    SHOP,
    TRANSACTION,
    VAULT,
    WATCHED,
    Scene,
)
from tests.docs.page_shell import PageShell, headings
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.once.conftest import fresh_schema

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/reference/cli.md"
COMMANDS = headings(PAGE.read_text("utf-8"))
GIVEN = (
    ("semel jobs submit", r"job_[0-9a-f]{32}", JOB),
    ("semel ledger org create second", r"\d{10,}", ORG),
    ("semel ledger org create shop", r"\d{10,}", ORG),
    ("semel ledger vault create", r"(?<=/)\d{10,}", VAULT),
    (f"semel ledger write {ORG}/{VAULT}", r"\b[0-9a-f]{32}\b", TRANSACTION),
)
"""What a command prints that later ones name: its beginning, a pattern, and what the page shows."""


def reason(line: str) -> str | None:
    """Why a line is not typed."""
    return next((why for beginning, why in NOT_TYPED.items() if line.startswith(beginning)), None)


def watched(line: str) -> str | None:
    """What a line says that goes on until it is stopped; None for the others, and for one that listens elsewhere."""
    said = next((said for beginning, said in WATCHED.items() if line.startswith(beginning)), None)
    return None if "0.0.0.0" in line else said


class Reader(PageShell):
    """One that follows the page from its beginning."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        self._stores = 0
        self.open_store()
        (folder / "backups").mkdir()
        self.put_in |= {
            "--at-most 57": "--at-most 1", "--since 57": "--since 1", "room-7 57 ": "room-7 1 ",
            "--start 40": "--start 1", "--trusted-height 40": "--trusted-height 1", "doc:1 ": "doc:readme ",
            "--principal shop": "--principal default", "/backups": str(folder / "backups"),
            "/etc/semel/tokens.toml": "tokens.toml", "/etc/semel.toml": "semel.toml", "/tmp": str(folder / "backups"),
            "http://127.0.0.1:9000": url, "https://semel.example.com": url,
            "postgresql://semel@db.example/semel": fresh_url(), SHOP: fresh_schema(),
            "ssh backups.example.com cat": "cat", "tail -f": "cat", "/var/log/semel.log": "app.log",
            "--port 9000": "--port 0",
        }  # fmt: skip

    def open_store(self) -> None:
        """Take a folder and a database that are empty."""
        self._stores += 1
        self.put_in |= {"/var/lib/semel": str(self.folder / f"store-{self._stores}"), DATABASE: fresh_url()}

    def type(self, line: str, says: str = "") -> str:
        """Run a line, and remember what it gave."""
        said = super().type(line, says)
        for beginning, pattern, shown in GIVEN:
            found = re.search(pattern, said) if line.startswith(beginning) else None
            if found is not None:
                self.put_in[shown] = found[0]
        if "--key image-7 --queue" in line:
            [request] = re.findall(r'"request_id": *"([^"]+)"', super().type("semel jobs show --key image-7 --json"))
            self.put_in[REQUEST] = request
        return said


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with ExitStack() as servers:
        yield Reader(tmp_path, servers.enter_context(RunningServer(tmp_path / "served")).url)


def test_every_command_succeeds_where_the_page_shows_it(reader: Reader) -> None:
    typed = 0
    for heading, lines in COMMANDS.items():
        scene = SCENES.get(heading, Scene())
        if scene.is_fresh:
            reader.open_store()
        for line in scene.before:
            reader.type(line)
        for line in lines:
            says = watched(line)
            if says is not None:
                reader.watch(line, says)
            elif reason(line) is None:
                for before in BEFORE.get(line, ()):
                    reader.type(before)
                reader.type(line)
            typed += says is not None or reason(line) is None
    assert typed >= 150


@pytest.mark.parametrize(("beginning", "why"), NOT_TYPED.items(), ids=list(NOT_TYPED))
def test_a_command_that_is_not_typed_is_run_by_the_test_that_is_named(beginning: str, why: str) -> None:
    assert [line for lines in COMMANDS.values() for line in lines if line.startswith(beginning)], "no such command"
    named = re.findall(r"tests/[\w/]+\.py", why)
    assert named
    words = [word for word in beginning.split()[1:] if re.fullmatch(r"(?:--)?[a-z]+", word)]
    texts = [(ROOT / path).read_text("utf-8") for path in named]
    assert [word for word in words if not any(word in text for text in texts)] == []

"""The commands of the pages for operators, typed in their order, succeed; those that are not typed say why."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from docs.site.stage import DOCS, ROOT
from tests.docs.not_run import reason_not_to_run
from tests.docs.operating_scenes import BACKUP, DATABASE, PAGES, RESTORED, SAME_DATABASE, Elsewhere, Page
from tests.docs.page_shell import PageShell, headings
from tests.harness.postgres.shared import fresh_url
from tests.harness.server import RunningServer
from tests.server.http.test_tls import Files


class Operator(PageShell):
    """One that follows a page on a machine with an empty disk and two empty databases."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        self.semel.env |= {"SEMEL_PORT": "0", "SEMEL_LEDGER_GRPC_PORT": "0"}
        (folder / "backups").mkdir()
        (folder / "semel.toml").write_text("port = 8788\n")
        (folder / "app.log").write_text("one line\n")
        (folder / "admin.token").write_text("any")
        pair = Files(folder)
        pair.write(1)
        database = fresh_url()
        self.put_in |= {
            "/var/lib/semel": str(folder / "store"), "/var/lib/semel-new": str(folder / "new"),
            "/var/lib/acme": str(folder / "acme"), "/backups": str(folder / "backups"),
            "/tmp": str(folder / "backups"), "/etc/semel.toml": str(folder / "semel.toml"),
            "/var/log/semel.log": str(folder / "app.log"), "http://127.0.0.1:8787": url, "--port 8788": "--port 0",
            "fullchain.pem": str(pair.certificate), "--tls-key key.pem": f"--tls-key {pair.key}",
            DATABASE: database, SAME_DATABASE: database, RESTORED: fresh_url(),
            "--token-file admin.token": f"--token-file {folder / 'admin.token'}",
            "semel backup acme.backup": f"semel backup {folder / 'acme.backup'}",
            "semel restore acme.backup": f"semel restore {folder / 'acme.backup'}",
        }  # fmt: skip

    def type(self, line: str, says: str = "") -> str:
        """Run a line where it can succeed, and keep what later ones name."""
        if line.startswith("semel restore ") and SAME_DATABASE in line:
            self.put_in[SAME_DATABASE] = fresh_url()  # a restore needs an empty one
        if line.startswith("mkdir "):
            shutil.rmtree(self.folder / "new")
        said = super().type(line, says)
        if line.startswith("mkdir "):  # where the page has a copy of Litestream's
            super().type(f"semel restore /backups/{BACKUP} --data /var/lib/semel-new")
        for bundle in (*self.folder.glob("diag_*.zip"), *self.folder.glob("backups/diag_*.zip")):
            with ZipFile(bundle) as parts:
                assert json.loads(parts.read("about.json"))["version"]
            bundle.unlink()  # the next one may have the same name
        found = re.search(r"semel-\d{8}T\d{6}Z\.backup", said)
        if found is not None:
            self.put_in[BACKUP] = found[0]
        return said

    def agree(self, line: str) -> None:
        """Run a line at a terminal, and answer its question with yes."""
        run = self.semel.on_terminal(*shlex.split(self.typed(line))[1:], typed=b"y\n")
        assert run.code == 0, (line, run.raw)
        assert b"?" in run.raw, (line, run.raw)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for the commands that ask one."""
    env = {"SEMEL_NAMESPACES": "acme"}
    with RunningServer(tmp_path_factory.mktemp("served") / "data", env=env) as server:
        yield server.url


def follow(operator: Operator, page: Page, line: str) -> None:
    """Type one line of a page, as the page needs it."""
    says = next((says for beginning, says in page.watched.items() if line.startswith(beginning)), None)
    if says is not None:
        variables = dict(re.findall(r"(?:^| )([A-Z_]+)=(\S+)", line.partition("semel ")[0]))
        operator.watch(line[line.index("semel ") :], says, variables)
    elif page.asked and line.startswith(page.asked) and "--dry-run" not in line:
        operator.agree(line)
    elif not line.startswith(tuple(page.not_typed)) and reason_not_to_run("", line) is None:
        operator.type(line)


@pytest.mark.parametrize("name", PAGES)
def test_every_command_succeeds_where_the_page_shows_it(
    name: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    operator, page = Operator(tmp_path, url), PAGES[name]
    for line in page.before:
        operator.type(line)
    for lines in headings((DOCS / "operating" / name).read_text("utf-8")).values():
        for line in lines:
            follow(operator, page, line)


NOT_TYPED = [(name, beginning, one) for name, page in PAGES.items() for beginning, one in page.not_typed.items()]


@pytest.mark.parametrize(("name", "beginning", "one"), NOT_TYPED, ids=lambda value: str(value)[:40])
def test_a_command_that_is_not_typed_stands_in_the_file_that_is_named(
    name: str, beginning: str, one: Elsewhere
) -> None:
    of_page = [line for lines in headings((DOCS / "operating" / name).read_text("utf-8")).values() for line in lines]
    lines = [line for line in of_page if line.startswith(beginning)]
    assert lines, "no such command"
    text = (ROOT / one.test).read_text("utf-8")
    assert [word for word in one.words if word not in text] == []
    assert [line for line in lines if any(word not in line for word in one.words)] == []

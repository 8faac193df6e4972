"""Files, settings, URLs and tables in the pages are read by the program that they are for: ours, libpq, promtool."""

from __future__ import annotations

import re
from hashlib import sha256
from itertools import count
from pathlib import Path

import apsw
import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from docs.site.stage import ROOT
from semel.client import Client
from semel.server.auth.credentials import TokenFileError, read_token_file
from semel.server.quotas.limits import QuotaLimits, read_quotas
from semel.server.setting_values import SettingsError
from semel.server.settings_loader import load_settings
from semel.store.postgres.address import parse
from semel.surfaces.registry import SCOPE_RULES
from tests.cli.command import Semel
from tests.docs.reader import Block, blocks
from tests.harness.postgres.cluster import setting_in
from tests.harness.postgres.shared import shared_cluster
from tests.harness.promtool import run
from tests.harness.server import HOST

SETTINGS = ("docs/reference/settings.md", "# semel.toml")
VARIABLES = ("docs/operating/credentials.md", "SEMEL_ALLOWED_HOSTS=")
TOKENS = {
    ("docs/operating/credentials.md", 'name = "operator"'): {"orders-service", "operator"},
    ("docs/operating/credentials.md", 'name = "mailer"'): {"mailer"},
    ("docs/operating/credentials.md", 'name = "till-3"'): {"till-3"},
    ("docs/operating/namespaces.md", 'name = "acme-app"'): {"acme-app"},
    ("docs/operating/quotas.md", 'name = "shop"'): {"shop"},
}
"""Blocks of token files, and the names in them."""
QUOTAS = ("docs/operating/quotas.md", "[[quota]]")
SCRAPE = ("docs/operating/metrics.md", "scrape_configs:")
URLS = (("docs/operating/high-availability.md", "@db1.example"), ("docs/operating/postgres.md", "@one,two,three"))
STANDBYS = ("docs/operating/postgres.md", "synchronous_standby_names")
ROLE = ("docs/operating/high-availability.md", "CREATE ROLE semel")
FOLDERS = ("docs/internals/architecture.md", "src/semel/")
REPLICA = ("docs/guide/replicas.md", "semel_outbox ")
READ = (SETTINGS, VARIABLES, *TOKENS, SCRAPE, *URLS, STANDBYS, ROLE, FOLDERS, REPLICA)
"""All blocks of this test, by page and a part of them."""


def block(place: tuple[str, str]) -> Block:
    """The one block of a page that is no command and has this part."""
    page, part = place
    found = [one for one in blocks((ROOT / page).read_text("utf-8")) if part in one.text and one.language != "console"]
    [one] = [one for one in found if one.language != "python"]
    return one


@pytest.mark.parametrize("place", READ, ids=lambda place: f"{Path(place[0]).stem}: {place[1]}")
def test_each_block_is_there_once(place: tuple[str, str]) -> None:
    assert block(place).text


# -- our own files -----------------------------------------------------------------------------------------------------


def token_file(folder: Path, text: str) -> Path:
    """A token file of a page; hashes that it only describes become those of tokens."""
    numbers = count()
    shown = re.sub(r'^sha256 = ".*"', lambda _: f'sha256 = "{digest(next(numbers))}"', text, flags=re.M)
    path = folder / "tokens.toml"
    path.write_text(shown, "utf-8")
    return path


def digest(number: int) -> str:
    return sha256(str(number).encode()).hexdigest()


@pytest.mark.parametrize("place", TOKENS, ids=lambda place: place[1])
def test_a_token_file_can_be_used(place: tuple[str, str], tmp_path: Path) -> None:
    text = block(place).text
    principals = read_token_file(token_file(tmp_path, text), SCOPE_RULES)
    assert {one.name for one in principals.values()} == TOKENS[place]
    for right, wrong in (("roles = [", "roles = [1, "), ("sha256 =", "sha265 =")):
        if right in text:
            with pytest.raises(TokenFileError):
                read_token_file(token_file(tmp_path, text.replace(right, wrong)), SCOPE_RULES)


def test_quotas_of_a_token_file_are_those_that_are_shown(tmp_path: Path) -> None:
    none = QuotaLimits(*(0 for _ in QuotaLimits._fields))
    named = read_quotas(str(token_file(tmp_path, block(QUOTAS).text)), none)
    assert named == {
        "client:shop": none._replace(requests_per_second=500, body_bytes_per_second=2_000_000),
        "user:ann": none._replace(live_readers=20, connections=50),
    }


def test_a_configuration_file_can_be_used(tmp_path: Path) -> None:
    path = tmp_path / "semel.toml"
    path.write_text(block(SETTINGS).text, "utf-8")
    settings = load_settings({}, {}, path)
    assert (settings.port, str(settings.data)) == (9000, "/var/lib/semel")
    path.write_text(block(SETTINGS).text.replace("port =", "prot ="), "utf-8")
    with pytest.raises(SettingsError, match="did you mean port"):
        load_settings({}, {}, path)


def test_variables_can_be_used() -> None:
    given = dict(line.split("=", 1) for line in block(VARIABLES).text.splitlines())
    settings = load_settings({}, given, None)
    assert settings.allowed_hosts == given["SEMEL_ALLOWED_HOSTS"]
    assert settings.allowed_origins == given["SEMEL_ALLOWED_ORIGINS"]
    with pytest.raises(SettingsError):
        load_settings({}, dict.fromkeys(given, "https://"), None)


def test_every_folder_of_the_tree_is_there() -> None:
    """A line has folders with their contents behind them: `engine/  the one commit path`, also two to a line."""
    root, *lines = block(FOLDERS).text.splitlines()
    above = ROOT / root
    missing, named = [], set()
    for line in lines:
        depth = len(line) - len(line.lstrip())
        folders = re.findall(r"(?:^ +|  )(\w+)/(?=  )", line)
        assert folders, line
        above = ROOT / root if depth == 2 else above
        missing += [name for name in folders if not (above / name).is_dir()]
        if depth == 2:
            named.add(folders[0])
            above = ROOT / root / folders[0]
            inner = re.findall(r"\b(\w+(?:/|\.py))(?=[ ,;]|$)", line.strip().partition("  ")[2])
            missing += [name for name in inner if not (above / name).exists()]
    assert missing == []
    real = {path.name for path in (ROOT / root).iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert named == real


def test_a_replica_has_the_tables_that_are_shown(tmp_path: Path) -> None:
    shown = [line.split()[0] for line in block(REPLICA).text.splitlines()]
    with Client("http://127.0.0.1:1") as client:
        db = client.deltas(tmp_path / "app.db", "home", "phone")
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'semel%'"
        db.close()
    reader = apsw.Connection(str(tmp_path / "app.db"), flags=apsw.SQLITE_OPEN_READONLY)
    real = [name for (name,) in reader.execute(tables)]
    reader.close()
    assert sorted(shown) == sorted(real)


# -- what others read --------------------------------------------------------------------------------------------------


def test_prometheus_can_scrape_as_it_is_told(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    text = block(SCRAPE).text.replace("/etc/prometheus/semel-token", str(tmp_path / "token"))
    config = tmp_path / "prometheus.yaml"
    config.write_text(text)
    checked = run("check", "config", config)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    config.write_text(text.replace("credentials_file", "credential_file"))
    assert run("check", "config", config).returncode != 0
    [job] = yaml.safe_load(text)["scrape_configs"]
    assert f'up{{job="{job["job_name"]}"}}' in (ROOT / "deploy/prometheus/alerts.yaml").read_text("utf-8")


@pytest.mark.parametrize("place", URLS, ids=lambda place: place[1])
def test_libpq_knows_every_part_of_a_url(place: tuple[str, str]) -> None:
    url = block(place).text.strip()
    assert load_settings({"store": url}, {}, None).store_url == url
    given = conninfo_to_dict(parse(url).conninfo)
    assert given["target_session_attrs"] == "read-write"
    known = {
        "host": given["host"],
        "hostaddr": ",".join([HOST] * 3),
        "port": shared_cluster().port,
        "dbname": "postgres",
    }
    with psycopg.connect(make_conninfo(parse(url).conninfo, **known)) as connection:
        assert connection.execute("SHOW transaction_read_only").fetchone() == ("off",)
    with pytest.raises(psycopg.OperationalError, match="target_session_attrs"):
        psycopg.connect(make_conninfo(parse(url.replace("read-write", "read-wirte")).conninfo, **known))


def test_postgresql_reads_the_settings_of_a_standby() -> None:
    text = block(STANDBYS).text
    assert setting_in(text, "synchronous_standby_names") == "ANY 1 (one, two)"
    assert setting_in(text, "synchronous_commit") == "on"
    with pytest.raises(RuntimeError, match="synchronous_standby_names"):
        setting_in(text.replace("ANY 1 (", "ANY 1 "), "synchronous_standby_names")


def test_the_role_that_is_made_can_run_a_server() -> None:
    """Under another name: the databases of all tests are on one server."""
    cluster, name = shared_cluster(), "semel_of_the_page"
    for statement in block(ROLE).text.strip().splitlines():
        cluster.execute(re.sub(r"\bsemel\b", name, statement))
    url = cluster.url.replace("//semel@", f"//{name}@").replace("/postgres", f"/{name}")
    try:
        run_to_end = Semel("http://127.0.0.1:1").here("migrate", "--store", url)
        assert run_to_end.code == 0, run_to_end.err
        assert cluster.execute("SELECT tableowner FROM pg_tables WHERE schemaname = 'semel'", database=name)[0] == (
            name,
        )
    finally:
        cluster.execute(f"DROP DATABASE {name} WITH (FORCE)")
        cluster.execute(f"DROP ROLE {name}")

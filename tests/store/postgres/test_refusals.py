"""Starting on a PostgreSQL that cannot be used: one sentence that says what to change, and nothing done to it.

Every URL here has a password in it, which no output may show. A server that starts all the same is stopped by the
time limit of its process, and so is a failure.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from semel.engine.clock import SystemWorld
from semel.store.open import open_store
from semel.store.postgres import connection
from semel.store.postgres.connection import ServerFacts, UnfitServerError, refusal
from semel.surfaces.schema import MIGRATIONS, TABLES
from tests.harness.postgres.cluster import Cluster
from tests.harness.server import HOST, RunningServer, free_port

SECRET = "hush-hush/4@2 all"
"""Has to be percent-encoded; whatever part of it is shown, it begins with the same word."""
GUARDED = "guarded"
"""The one role that is asked for its password, which is the secret."""
START_SECONDS = 90
JSON = {"Content-Type": "application/json"}
SERVE = ("-m", "semel")
SERVE_WITHOUT_A_DRIVER = ("-c", "import sys; sys.modules['psycopg'] = None; from semel.cli.main import main; main()")

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def primary() -> Iterator[Cluster]:
    """A server of this module's own: roles, databases and the rules of who may enter are the whole server's."""
    cluster = Cluster()
    try:
        cluster.create()
        rules = cluster.data / "pg_hba.conf"
        rules.write_text(f"host all {GUARDED} {HOST}/32 scram-sha-256\n{rules.read_text()}")
        cluster.start()
        cluster.execute(f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{SECRET}'")
        cluster.execute(f"GRANT CREATE ON DATABASE postgres TO {GUARDED}")
        yield cluster
    finally:
        cluster.remove()


@pytest.fixture(scope="module")
def standby(primary: Cluster) -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        cluster.copy_of(primary, "standby")
        cluster.start()
        yield cluster
    finally:
        cluster.remove()


def url_of(
    *clusters: Cluster, user: str = "semel", password: str = SECRET, database: str = "postgres", **parameters: str
) -> str:
    """All of these servers as one URL; each is given time to let somebody in."""
    parameters = {"connect_timeout": "60"} | parameters
    hosts = ",".join(f"{HOST}:{cluster.port}" for cluster in clusters)
    query = "&".join(f"{name}={quote(value)}" for name, value in parameters.items())
    return f"postgresql://{user}:{quote(password, safe='')}@{hosts}/{database}?{query}"


def fresh_name(kind: str) -> str:
    """A schema, role or database that nobody has used."""
    return f"{kind}_{next(_numbers)}"


def fresh_role(cluster: Cluster, setting: str) -> str:
    """A role that may make schemas, and has one setting of its own."""
    role = fresh_name("role")
    cluster.execute(f"CREATE ROLE {role} LOGIN")
    cluster.execute(f"GRANT CREATE ON DATABASE postgres TO {role}")
    cluster.execute(f"ALTER ROLE {role} SET {setting}")
    return role


def fresh_database(cluster: Cluster, options: str = "") -> str:
    database = fresh_name("database")
    cluster.execute(f"CREATE DATABASE {database} {options}")
    return database


def tables_in(cluster: Cluster, database: str = "postgres") -> set[tuple[str, str | None]]:
    """Every schema of ours or of others, and the tables in it."""
    query = """
    SELECT nspname, relname FROM pg_namespace LEFT JOIN pg_class ON relnamespace = pg_namespace.oid
    WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
    """
    return {(schema, table) for schema, table in cluster.execute(query, database=database)}


def environment() -> dict[str, str]:
    """Without the settings of the developer's own shell."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("SEMEL_", "PG"))}


def refused(url: str, data: Path, program: Sequence[str] = SERVE) -> str:
    """Start a server that must not start; its one line."""
    command = [sys.executable, *program, "serve", "--port", "0", "--data", str(data / "data"), "--store", url]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=START_SECONDS, check=False, env=environment(), cwd=data
    )
    assert done.returncode != 0
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("Error: ")
    assert "hush" not in lines[0]
    assert list(data.iterdir()) == []
    return lines[0].removeprefix("Error: ")


CANNOT_BE_READ = "The PostgreSQL URL cannot be read"
UNREADABLE = {
    "nothing behind it": "postgresql://",
    "a broken address": "postgresql://semel:hush@[::1/postgres",
    "a broken percent sign": "postgresql://semel:hush%ZZ@127.0.0.1/postgres",
    "a zero byte": "postgresql://semel:hush%00@127.0.0.1/postgres",
    "a space": "postgresql://semel:hush hush@127.0.0.1/postgres",
    "a parameter without a value": "postgresql://semel:hush@127.0.0.1/postgres?lanes",
    "a parameter that there is not": "postgresql://semel:hush@127.0.0.1/postgres?lane=4",
    "no slashes": "postgresql:semel:hush@127.0.0.1/postgres",
}


@pytest.mark.parametrize("url", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_url_that_cannot_be_read(url: str, tmp_path: Path) -> None:
    assert CANNOT_BE_READ in refused(url, tmp_path)


SECRET_IN_CLEAR = {
    "a slash": "postgresql://semel:open/hush@nowhere.invalid/postgres",
    "an at sign": "postgresql://semel:open@hush@nowhere.invalid/postgres",
    "both": "postgresql://semel:open/hush@hush@nowhere.invalid/postgres",
}


@pytest.mark.parametrize("url", SECRET_IN_CLEAR.values(), ids=SECRET_IN_CLEAR.keys())
def test_a_password_that_should_have_been_encoded_is_not_shown_in_part(url: str, tmp_path: Path) -> None:
    refused(url, tmp_path)


UNKNOWN = {
    "another database": "mysql://semel:hush@127.0.0.1/semel",
    "a password in a parameter": "mysql://127.0.0.1/semel?user=semel&password=hush",
    "a dialect": "postgresql+psycopg://semel:hush@127.0.0.1/semel",
    "another case": "PostgreSQL://semel:hush@127.0.0.1/semel",
    "no slashes": "mysql:semel:hush@127.0.0.1",
    "a slash in the password": "mysql://semel:open/hush@127.0.0.1/semel",
}


@pytest.mark.parametrize("url", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_a_store_that_there_is_not(url: str, tmp_path: Path) -> None:
    assert "There is no store" in refused(url, tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("lanes", "0", "lanes in the PostgreSQL URL must be a number from 1 to 64."),
        ("lanes", "65", "lanes in the PostgreSQL URL must be a number from 1 to 64."),
        ("lanes", "x", "lanes in the PostgreSQL URL must be a number from 1 to 64."),
        ("lanes", "-1", "lanes in the PostgreSQL URL must be a number from 1 to 64."),
        ("lanes", "٤", "lanes in the PostgreSQL URL must be a number from 1 to 64."),
        ("lanes", "9" * 5_000, "lanes in the PostgreSQL URL must be a number from 1 to 64."),
        ("readers", "", "readers in the PostgreSQL URL must be a number from 1 to 64."),
        ("patience_ms", "1", "patience_ms in the PostgreSQL URL must be a number from 500 to 600000."),
        (
            "schema",
            "Bad-Name",
            "The schema in the PostgreSQL URL must be 1 to 48 lower-case letters, digits and underscores",
        ),
        ("schema", "", "The schema in the PostgreSQL URL must be 1 to 48 lower-case letters, digits and underscores"),
        (
            "schema",
            "a" * 49,
            "The schema in the PostgreSQL URL must be 1 to 48 lower-case letters, digits and underscores",
        ),
        ("schema", "pg_ours", 'unacceptable schema name "pg_ours"'),
        ("sslmode", "unsure", 'invalid sslmode value: "unsure"'),
    ],
    ids=lambda value: value[:12],
)
def test_a_parameter_that_cannot_be_used(primary: Cluster, tmp_path: Path, name: str, value: str, told: str) -> None:
    before = tables_in(primary)
    assert told in refused(url_of(primary, **{name: value}), tmp_path)
    assert tables_in(primary) == before


def test_nobody_listens(tmp_path: Path) -> None:
    url = f"postgresql://semel:hush@{HOST}:{free_port()}/postgres"
    assert "Connection refused" in refused(url, tmp_path)


def test_a_host_that_there_is_not(tmp_path: Path) -> None:
    assert "nowhere.invalid" in refused("postgresql://semel:hush@nowhere.invalid/postgres", tmp_path)


def test_a_host_that_says_nothing(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as silent:
        url = f"postgresql://semel:hush@{HOST}:{silent.getsockname()[1]}/postgres?connect_timeout=2"
        assert "timeout" in refused(url, tmp_path)


GREETING = struct.pack(">cii", b"R", 8, 0) + struct.pack(">cic", b"Z", 5, b"I")
"""What a server says to one that it lets in: you are welcome, and I am ready."""


def greet_and_fall_silent(listener: socket.socket) -> None:
    """A server that hangs just when somebody has entered."""
    session, _ = listener.accept()
    with session, contextlib.suppress(ConnectionResetError):
        session.recv(4_096)
        session.sendall(GREETING)
        while session.recv(4_096):
            continue


def test_a_host_that_greets_and_then_says_nothing(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as listener, ThreadPoolExecutor(1) as pool:
        silence = pool.submit(greet_and_fall_silent, listener)
        address = f"{HOST}:{listener.getsockname()[1]}"
        refused(f"postgresql://semel:hush@{address}/postgres?patience_ms=1000&sslmode=disable", tmp_path)
        silence.result()


def test_a_wrong_password(primary: Cluster, tmp_path: Path) -> None:
    before = tables_in(primary)
    told = refused(url_of(primary, user=GUARDED, password="hush but wrong"), tmp_path)
    assert f'password authentication failed for user "{GUARDED}"' in told
    assert tables_in(primary) == before


def test_a_database_that_there_is_not(primary: Cluster, tmp_path: Path) -> None:
    assert 'database "nowhere" does not exist' in refused(url_of(primary, database="nowhere"), tmp_path)


def test_a_standby(primary: Cluster, standby: Cluster, tmp_path: Path) -> None:
    before = tables_in(primary)
    assert "is a standby" in refused(url_of(standby), tmp_path)
    assert tables_in(primary) == before


def test_a_standby_that_comes_first_when_the_url_does_not_ask_for_the_primary(
    primary: Cluster, standby: Cluster, tmp_path: Path
) -> None:
    before = tables_in(primary)
    assert "target_session_attrs=read-write" in refused(url_of(standby, primary), tmp_path)
    assert tables_in(primary) == before


def test_the_primary_is_found_behind_a_standby(primary: Cluster, standby: Cluster, tmp_path: Path) -> None:
    schema = fresh_name("schema")
    url = url_of(standby, primary, schema=schema, target_session_attrs="read-write")
    with RunningServer(tmp_path / "data", env={"SEMEL_STORE": url}) as server:
        httpx.put(server.url + "/v1/stream/s", headers=JSON).raise_for_status()
    assert (schema, "stream") in tables_in(primary)


@pytest.mark.parametrize("whose", ["role", "database"])
def test_a_setting_under_which_writes_are_refused(primary: Cluster, tmp_path: Path, whose: str) -> None:
    setting, told = "default_transaction_read_only = on", "default_transaction_read_only is on"
    if whose == "role":
        url, database = url_of(primary, user=fresh_role(primary, setting)), "postgres"
    else:
        database = fresh_database(primary)
        primary.execute(f"ALTER DATABASE {database} SET {setting}")
        url = url_of(primary, database=database)
    before = tables_in(primary, database)
    assert told in refused(url, tmp_path)
    assert tables_in(primary, database) == before


def test_a_server_that_does_not_sync(tmp_path: Path) -> None:
    with Cluster(settings={"fsync": "off"}) as careless:
        before = tables_in(careless)
        assert "fsync = off" in refused(url_of(careless), tmp_path)
        assert tables_in(careless) == before


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding(primary: Cluster, tmp_path: Path, encoding: str) -> None:
    database = fresh_database(primary, f"TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
    before = tables_in(primary, database)
    assert f"The database has the encoding {encoding}" in refused(url_of(primary, database=database), tmp_path)
    assert tables_in(primary, database) == before


def test_data_of_a_newer_version(primary: Cluster, tmp_path: Path) -> None:
    schema = fresh_name("schema")
    open_store(url_of(primary, schema=schema), TABLES, MIGRATIONS, SystemWorld().wall_ms).close()
    primary.execute(f"UPDATE {schema}.semel_schema SET version = 99")
    before = tables_in(primary), rows_of(primary, schema)
    assert f"The schema {schema} has schema version 99" in refused(url_of(primary, schema=schema), tmp_path)
    assert (tables_in(primary), rows_of(primary, schema)) == before


def rows_of(cluster: Cluster, schema: str) -> list[list[tuple[Any, ...]]]:
    """All that stands in the tables of the store itself."""
    names = ("semel_schema", "semel_generation", "semel_mark")
    return [cluster.execute(f"SELECT * FROM {schema}.{name} ORDER BY 1") for name in names]


def test_a_role_that_may_not_make_a_schema(primary: Cluster, tmp_path: Path) -> None:
    role = fresh_name("role")
    primary.execute(f"CREATE ROLE {role} LOGIN")
    before = tables_in(primary)
    assert "permission denied" in refused(url_of(primary, user=role), tmp_path)
    assert tables_in(primary) == before


def test_a_schema_of_somebody_elses(primary: Cluster, tmp_path: Path) -> None:
    schema = fresh_name("schema")
    primary.execute(f"CREATE SCHEMA {schema}")
    primary.execute(f"CREATE TABLE {schema}.stream (theirs int)")
    before = tables_in(primary)
    assert 'relation "stream" already exists' in refused(url_of(primary, schema=schema), tmp_path)
    assert tables_in(primary) == before


def test_no_driver(primary: Cluster, tmp_path: Path) -> None:
    assert "pip install 'semel[postgres]'" in refused(url_of(primary), tmp_path, SERVE_WITHOUT_A_DRIVER)


def test_a_server_that_is_too_old(primary: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "OLDEST_SERVER", 99)
    before = tables_in(primary)
    with pytest.raises(UnfitServerError, match="is too old: version 99 or newer is needed"):
        open_store(url_of(primary), TABLES, MIGRATIONS, SystemWorld().wall_ms)
    assert tables_in(primary) == before


FIT = ServerFacts(version=15_00_00, is_standby=False, is_read_only=False, fsync="on", encoding="UTF8")


@pytest.mark.parametrize(
    "facts",
    [
        FIT,
        FIT._replace(version=18_00_01),
        FIT._replace(version=100_00_00),
    ],
)
def test_a_server_that_is_fit(facts: ServerFacts) -> None:
    assert refusal(facts) is None


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (FIT._replace(version=14_00_22), "PostgreSQL 14 is too old: version 15 or newer is needed."),
        (FIT._replace(version=9_06_24), "PostgreSQL 9 is too old: version 15 or newer is needed."),
        (FIT._replace(is_standby=True, is_read_only=True), "is a standby"),
        (FIT._replace(is_read_only=True), "default_transaction_read_only is on"),
        (FIT._replace(fsync="off"), "fsync = off"),
        (FIT._replace(encoding="SQL_ASCII"), "the encoding SQL_ASCII"),
        (FIT._replace(version=14_00_00, fsync="off", encoding="LATIN1"), "is too old"),
    ],
)
def test_a_server_that_is_not_fit(facts: ServerFacts, told: str) -> None:
    assert told in (refusal(facts) or "")


def test_a_server_that_starts_shows_no_password(primary: Cluster, tmp_path: Path) -> None:
    url = url_of(primary, user=GUARDED, schema=fresh_name("schema"))
    with RunningServer(tmp_path / "data", env={"SEMEL_STORE": url}) as server:
        httpx.put(server.url + "/v1/stream/s", headers=JSON).raise_for_status()
    output = server.output.read_text()
    assert f"postgresql://{HOST}:{primary.port}/postgres" in output
    assert "hush" not in output


def test_parameters_of_libpq_reach_it_as_they_were_written(primary: Cluster, tmp_path: Path) -> None:
    """A plus sign is a plus sign there, not a space as in forms."""
    url = url_of(primary, schema=fresh_name("schema"), options="-c work_mem=5MB")
    url += "&application_name=one+one%20%2B%20one%20%26%20more"
    with RunningServer(tmp_path / "data", env={"SEMEL_STORE": url}) as server:
        httpx.put(server.url + "/v1/stream/s", headers=JSON).raise_for_status()
        names = primary.execute("SELECT DISTINCT application_name FROM pg_stat_activity WHERE datname = 'postgres'")
        assert ("one+one + one & more",) in names

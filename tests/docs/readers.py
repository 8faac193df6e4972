"""Blocks that are not run are read by the tool that they are for: Semel, SQLite, PostgreSQL, node, promtool, bash."""

from __future__ import annotations

import configparser
import itertools
import re
import shutil
import sqlite3
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import sqlparse
import yaml

from semel.server.auth.credentials import TokenFileError, read_token_file
from semel.server.quotas.limits import QuotaLimits, read_quotas
from semel.server.setting_values import SettingsError
from semel.server.settings_loader import load_settings
from semel.surfaces.registry import SCOPE_RULES
from tests.docs.answers import parsed
from tests.harness.postgres.shared import shared_cluster
from tests.harness.promtool import run as promtool

TOKEN_TABLES = {"token", "user", "jwt", "quota"}
_SECONDS = 60
_NO_QUOTAS = QuotaLimits(*(0 for _ in QuotaLimits._fields))
_MEANT = re.compile("syntax error|incomplete input|unrecognized token")
"""What SQLite says of a text that is no SQL; anything else is about tables that are not there."""


class UnreadableError(Exception):
    """A block is not what its language says."""


def _json(text: str) -> None:
    try:
        parsed(text)
    except ValueError:
        for line in filter(str.strip, text.split("\n")):
            parsed(line)


def _toml(text: str) -> None:
    """Any TOML; token files and settings are read by the server."""
    tables = tomllib.loads(text)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "read.toml"
        if tables.keys() & TOKEN_TABLES:
            numbers = itertools.count()
            hashes = re.sub(r'(?<=^sha256 = ").*?(?=")', lambda _: _digest(next(numbers)), text, flags=re.MULTILINE)
            path.write_text(hashes, "utf-8")
            read_token_file(path, SCOPE_RULES)
            read_quotas(str(path), _NO_QUOTAS)
        elif re.match(r"# \S*semel\.toml\n", text):
            path.write_text(text, "utf-8")
            load_settings({}, {}, path)


def _digest(number: int) -> str:
    return sha256(str(number).encode()).hexdigest()


def _yaml(text: str) -> None:
    """Any YAML; a configuration of Prometheus is read by promtool."""
    for document in yaml.safe_load_all(text):
        if isinstance(document, Mapping) and "scrape_configs" in document:
            _scrape(document)


def _scrape(document: Mapping[Any, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "secret").write_text("secret")
        own = re.sub(r"(?<=_file: )\S+", str(Path(folder) / "secret"), yaml.safe_dump(dict(document)))
        (Path(folder) / "prometheus.yaml").write_text(own)
        checked = promtool("check", "config", Path(folder) / "prometheus.yaml")
    if checked.returncode != 0:
        raise UnreadableError(checked.stdout + checked.stderr)


def _ini(text: str) -> None:
    configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True).read_string(text)


def _sql(text: str) -> None:
    """SQLite reads each statement, or else PostgreSQL does."""
    for statement in filter(None, (one.strip().rstrip(";") for one in sqlparse.split(text))):
        try:
            with sqlite3.connect(":memory:") as connection:
                connection.execute(f"EXPLAIN {statement}")
        except sqlite3.Error as error:
            if _MEANT.search(str(error)):
                shared_cluster().execute(f"DO $page$ BEGIN RETURN; {statement}; END $page$")


def _nginx(text: str) -> None:
    """Directives end with a semicolon, blocks with a brace."""
    bare = re.sub(r"#.*", "", re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", "x", text))
    depth = 0
    for words, end in re.findall(r"([^;{}]*)([;{}]|\Z)", bare):
        depth += {"{": 1, "}": -1}.get(end, 0)
        if depth < 0 or (end in ("}", "") and words.strip()):
            raise UnreadableError("a directive has no end, or a block no beginning")
    if depth:
        raise UnreadableError("a block has no end")


def _js(text: str) -> None:
    node = shutil.which("node")
    if node is not None:  # CI has it
        _ask([node, "--input-type=module", "--check"], text)


def _sh(text: str) -> None:
    _ask(["bash", "-n"], text)


def _ask(command: list[str], text: str) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        raise UnreadableError(done.stderr)


_READERS: Mapping[str, Callable[[str], None]] = {
    "ini": _ini,
    "js": _js,
    "json": _json,
    "nginx": _nginx,
    "sh": _sh,
    "sql": _sql,
    "toml": _toml,
    "yaml": _yaml,
}
_REFUSED = (
    UnreadableError,
    ValueError,
    yaml.YAMLError,
    configparser.Error,
    psycopg.Error,
    TokenFileError,
    SettingsError,
)


def read(language: str, text: str) -> str | None:
    """Read a block; what is wrong with it, or None."""
    try:
        _READERS[language](text)
    except _REFUSED as error:
        return f"{type(error).__name__}: {error}"
    return None

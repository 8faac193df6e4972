"""What is said of deltas is true where it can be checked: paths, roles, ids, the table of rows, stored tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import jwt

from semel.surfaces.deltas.tables import TABLES
from tests.deltas.vectors import CLIENT, HLC, ROW, TABLE, delta_id
from tests.docs.test_docs import DOCS, code, tables
from tests.harness.server import RunningServer

PAGE = DOCS / "reference/deltas.md"
SECRET = "s" * 32
CLAIMS = {"sub": "a", "gw": "gw1", "exp": 4_102_444_800}
ROLES = {"read": "client", "write": "client", "admin": "admin", "none": None}


def paths() -> list[tuple[str, str, str]]:
    """Path, method and role of every line, but for the one that needs a WebSocket."""
    rows = [row for row in tables(PAGE, 4) if row[0].startswith("`/v1/")]
    return [(code(path), method, code(role) or role) for path, method, _, role in rows if not path.endswith("/ws`")]


def headers(role: str | None) -> dict[str, str]:
    if role is None:
        return {}
    return {"Authorization": f"Bearer {jwt.encode(CLAIMS | {'role': role}, SECRET, 'HS256')}"}


def test_paths_have_the_methods_and_roles_that_are_shown(tmp_path: Path) -> None:
    shown = paths()
    assert len(shown) >= 10
    env = {"SEMEL_STORE": "memory:", "SEMEL_DELTAS_JWT_SECRET": SECRET}
    with RunningServer(tmp_path / "data", env=env) as server, httpx.Client(base_url=server.url) as http:
        missing = http.get("/v1/sync/gw1/nothing", headers=headers("admin")).json()["error"]
        for path, method, role in shown:
            url = path.replace("{gateway}", "gw1")
            for spelled in (url, url.removeprefix("/v1")):
                answer = http.request(method, spelled, headers=headers(ROLES[role]))
                assert missing not in answer.text, spelled
                assert answer.status_code not in (401, 403, 405), (spelled, answer.text)
            assert http.put(url, headers=headers("admin")).json()["error"] == missing
            if role != "none":
                assert http.request(method, url).status_code == 401
            if role == "admin":
                assert http.request(method, url, headers=headers("client")).status_code == 403


def test_ids_are_those_of_the_columns_that_are_shown() -> None:
    rows = [row for row in tables(PAGE, 2) if re.fullmatch(r"`[0-9a-f]{64}`", row[1])]
    assert len(rows) == 10
    [both] = [code(row[0]) for row in rows if "completed" in row[0]]
    for case, name in rows:
        text = code(case) if case.startswith("`") else json.dumps(json.loads(both)[::-1])
        delta = {"clientId": CLIENT, "hlc": HLC, "rowId": ROW, "table": TABLE, "columns": json.loads(text)}
        assert delta_id(delta) == code(name), case


def test_every_table_of_deltas_has_its_row() -> None:
    rows = tables(DOCS / "internals/surface-deltas.md", 3)
    assert [code(row[0]) for row in rows if row[0].startswith("`delta_")] == [table.name for table in TABLES]

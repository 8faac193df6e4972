"""What is said of the ledger is true where it can be checked: paths, codes, statuses, tables."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from semel.kernel.errors import REGISTRY
from semel.surfaces.ledger.access import COLLISION, GAP
from semel.surfaces.ledger.commands import WriteErrorCode
from semel.surfaces.ledger.model import ORG_STATUSES, VAULT_STATUSES
from semel.surfaces.ledger.tables import TABLES
from tests.docs.test_docs import DOCS, code, tables
from tests.harness.server import RunningServer

PAGE = DOCS / "reference/ledger.md"
PLACES = ("/ledger/v1/orgs/{org}", "/ledger/v1/orgs/{org}/vaults/{vault}")
SOME = {"clientId": "till-3", "key": "ada", "height": "1", "txId": "00" * 16}
OF_VAULTS = ("P/relationships", "P/resources")


def paths() -> dict[str, set[str]]:
    """The methods that the page shows, by path."""
    shown: dict[str, set[str]] = {}
    for cell, methods, *_ in tables(PAGE, 4):
        for path in re.findall(r"`((?:P|/ledger/v1)/[^`]*)`", cell):
            places = PLACES[1:] if path in OF_VAULTS else PLACES
            for full in [path] if path.startswith("/") else [place + path[1:] for place in places]:
                shown.setdefault(full, set()).update(methods.split(", "))
    return shown


def test_paths_have_the_methods_that_are_shown(tmp_path: Path) -> None:
    shown = paths()
    assert len(shown) > 20
    with RunningServer(tmp_path / "data", env={"SEMEL_STORE": "memory:"}) as server:
        orgs = server.url + "/ledger/v1/orgs"
        org = httpx.post(orgs, json={"name": "shop"}).json()["slug"]["slug"]
        vault = httpx.post(f"{orgs}/{org}/vaults", json={}).json()["vault"]["slug"]
        for path, wanted in shown.items():
            answer = httpx.put(server.url + path.format(**SOME, org=org, vault=vault))
            assert answer.status_code == 405, path
            assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == wanted, path


def test_every_code_has_its_row() -> None:
    rows = [row for row in tables(PAGE, 5) if row[1].isdigit() and not re.search(r"` \d", row[0])]
    assert [(code(row[0]), int(row[1])) for row in rows] == [(one.name, one.value) for one in WriteErrorCode]


def test_every_status_has_its_row() -> None:
    rows = [row for row in tables(PAGE, 5) if re.match(r"`[A-Z_]+` \d+", row[0])]
    written = set()
    for row in rows:
        names = re.findall(r"`([A-Z_]+)` (\d+)", row[0])
        written |= {
            (name, int(number), int(http)) for (name, number), http in zip(names, row[1].split(", "), strict=True)
        }
    kinds = [kind for kind in REGISTRY.values() if kind.code.startswith("ledger:")]
    kinds = [kind for kind in kinds if kind.name != "method_not_allowed"]
    assert written == {(kind.grpc.name, kind.grpc.value, kind.status) for kind in kinds}


def test_every_state_of_an_organization_and_of_a_vault_has_its_row() -> None:
    rows = [row for row in tables(PAGE, 3) if re.match(r"`[A-Z_`, ]+$", row[0])]
    named = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row[0])}
    assert {status.name for status in (*ORG_STATUSES, *VAULT_STATUSES)} <= named


def test_every_table_of_the_ledger_has_its_row() -> None:
    rows = tables(DOCS / "internals/surface-ledger.md", 3)
    assert [code(row[0]) for row in rows if row[0].startswith("`ledger_")] == [table.name for table in TABLES]


def test_every_audit_line_of_the_ledger_has_its_row() -> None:
    rows = {code(row[0]): row[3] for row in tables(DOCS / "operating/audit.md", 4)}
    assert rows[COLLISION].startswith("before the")
    assert rows[GAP] == "rarely"

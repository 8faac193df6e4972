"""The tables that people write say what the code says; test_generated has those that are made from the code."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import json
import random
import re
from collections.abc import Iterator

import click
import httpx
import jwt
import pytest
from psycopg.conninfo import conninfo_to_dict

from docs.metrics import NOTES
from semel.cli.proxy import proxy
from semel.kernel.errors import REGISTRY
from semel.once import Outbox
from semel.once.exchange import HOP_BY_HOP, PASSING
from semel.once.messages import RETRIED, Delivery, LeasedMessage, OutboxMessage, RetryWaits, judged
from semel.proxy.settings import VARIABLES
from semel.server.ops.audit_log import CLASSES, LineClass
from semel.server.settings_loader import load_settings
from semel.store.postgres.address import parse
from semel.surfaces.jobs.audit_trail import ENTRIES, JobAuditPace
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.wire.fields import parse_members
from semel.surfaces.jobs.wire.submission import parse_draft
from semel.surfaces.ledger.access import COLLISION, GAP
from semel.surfaces.ledger.commands import WriteErrorCode
from semel.surfaces.ledger.model import ORG_STATUSES, VAULT_STATUSES
from semel.testing import assert_idempotent, idempotency
from tests.deltas.vectors import CLIENT, HLC, ROW, TABLE, delta_id
from tests.docs.fences import fences
from tests.docs.markdown import DOCS, ROOT, code, prose, tables
from tests.harness.postgres.cluster import setting_in
from tests.harness.server import RunningServer

SECRET = "s" * 32
DIGEST = r"[0-9a-f]{64}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One for all tables of paths and metrics."""
    env = {"SEMEL_STORE": "memory:", "SEMEL_DELTAS_JWT_SECRET": SECRET}
    with RunningServer(tmp_path_factory.mktemp("tables") / "data", env=env) as running:
        yield running


# -- the server --------------------------------------------------------------------------------------------------------


def test_every_metric_of_a_running_server_has_its_row(server: RunningServer) -> None:
    text = httpx.get(server.url + "/metrics", headers={"Accept": "text/plain"}).text
    told = re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE)
    metrics = {name: kind for name, kind in told if not name.endswith("_created")}
    rows = tables(DOCS / "reference/metrics.md", 4)
    assert {code(row[0]): row[1] for row in rows if row[1] in ("counter", "gauge", "histogram")} == metrics
    assert set(NOTES) <= set(metrics)


AUDIT = {code(row[0]): row for row in tables(DOCS / "operating/access.md", 4) if re.fullmatch("`[A-Z_]+`", row[0])}


def test_b2_every_audit_event_has_its_row_and_its_class() -> None:
    assert set(AUDIT) == set(CLASSES)
    marks = {LineClass.IMPORTANT: "important", LineClass.PACED: "paced", LineClass.RARE: "rarely"}
    for event, kind in CLASSES.items():
        told = [mark for mark in marks.values() if mark in AUDIT[event][3]]
        assert told == ([marks[kind]] if kind in marks else []), event


def test_every_audit_event_of_jobs_and_ledger_is_written_as_it_is_said() -> None:
    paces = {JobAuditPace.FIRST: "before the", JobAuditPace.SOON: "within a second", JobAuditPace.RARELY: "rarely"}
    for event, entry in ENTRIES.items():
        _, _, details, written = AUDIT[event]
        assert written.startswith(paces[entry.pace]), event
        assert ("`remote_addr`" in details, "`path`" in details) == (entry.has_address, entry.has_path), event
    assert AUDIT[COLLISION][3].startswith("before the")
    assert AUDIT[GAP][3] == "rarely"


def test_postgresql_reads_the_settings_and_the_url_of_the_page() -> None:
    blocks = [one.text for one in fences((DOCS / "operating/postgres.md").read_text("utf-8")) if one.language == "text"]
    [settings] = [text for text in blocks if "synchronous_standby_names" in text]
    assert setting_in(settings, "synchronous_standby_names") == "ANY 1 (one, two)"
    assert setting_in(settings, "synchronous_commit") == "on"
    [url] = [text.strip() for text in blocks if text.startswith("postgresql://")]
    assert conninfo_to_dict(parse(url).conninfo)["target_session_attrs"] == "read-write"
    assert load_settings({"store": url}, {}, None).store_url == url


# -- references --------------------------------------------------------------------------------------------------------


def paths_of(page: str, pattern: str) -> dict[str, set[str]]:
    """The methods of paths that a page shows."""
    shown: dict[str, set[str]] = {}
    for cell, methods, *_ in tables(DOCS / page, 4):
        for path in re.findall(rf"`({pattern}[^`]*)`", cell):
            shown.setdefault(path, set()).update(methods.split(", "))
    assert len(shown) > 10
    return shown


def test_paths_of_jobs_have_the_methods_that_are_shown(server: RunningServer) -> None:
    some = {"job_id": "job_" + 32 * "0", "queue": "images", "name": "nightly"}
    for path, wanted in paths_of("reference/jobs.md", "/(?:v1|mesh)").items():
        answer = httpx.patch(server.url + path.format(**some))
        assert set(answer.headers["allow"].split(", ")) == wanted, path


def test_paths_of_the_ledger_have_the_methods_that_are_shown(server: RunningServer) -> None:
    some = {"clientId": "till-3", "key": "ada", "height": "1", "txId": "00" * 16}
    places = ("/ledger/v1/orgs/{org}", "/ledger/v1/orgs/{org}/vaults/{vault}")
    orgs = server.url + "/ledger/v1/orgs"
    org = httpx.post(orgs, json={"name": "shop"}).json()["slug"]["slug"]
    vault = httpx.post(f"{orgs}/{org}/vaults", json={}).json()["vault"]["slug"]
    for path, wanted in paths_of("reference/ledger.md", "(?:P|/ledger/v1)/").items():
        own = places[1:] if path in ("P/relationships", "P/resources") else places
        for full in [path] if path.startswith("/") else [place + path[1:] for place in own]:
            answer = httpx.put(server.url + full.format(**some, org=org, vault=vault))
            assert answer.status_code == 405, full
            assert set(answer.headers["allow"].split(", ")) - {"HEAD"} >= wanted, full


def test_paths_of_deltas_have_the_methods_and_roles_that_are_shown(server: RunningServer) -> None:
    roles = {"read": "client", "write": "client", "admin": "admin", "none": None}
    rows = [row for row in tables(DOCS / "reference/deltas.md", 4) if row[0].startswith("`/v1/")]
    shown = [(code(path), method, code(role) or role) for path, method, _, role in rows if not path.endswith("/ws`")]
    assert len(shown) >= 10

    def headers(role: str | None) -> dict[str, str]:
        claims = {"sub": "a", "gw": "gw1", "exp": 4_102_444_800, "role": role}
        return {"Authorization": f"Bearer {jwt.encode(claims, SECRET, 'HS256')}"} if role else {}

    with httpx.Client(base_url=server.url) as http:
        missing = http.get("/v1/sync/gw1/nothing", headers=headers("admin")).json()["error"]
        for path, method, role in shown:
            url = path.replace("{gateway}", "gw1")
            for spelled in (url, url.removeprefix("/v1")):
                answer = http.request(method, spelled, headers=headers(roles[role]))
                assert missing not in answer.text, spelled
                assert answer.status_code not in (401, 403, 405), (spelled, answer.text)
            assert http.put(url, headers=headers("admin")).json()["error"] == missing
            assert role == "none" or http.request(method, url).status_code == 401
            assert role != "admin" or http.request(method, url, headers=headers("client")).status_code == 403


def test_hashes_and_signatures_of_jobs() -> None:
    rows = [row for row in tables(DOCS / "reference/jobs.md", 3) if re.fullmatch(DIGEST, code(row[2]))]
    hashed, signed = ([row for row in rows if word in row[0]] for word in ('"kind"', '"job_id"'))
    assert (len(hashed), len(signed)) == (6, 2)
    for sent, hashed_as, digest in hashed:
        draft = parse_draft(parse_members(code(sent).encode()), None, b"default", JobPolicy(), bytes(8))
        assert draft.payload_hash.hex() == code(digest), sent
        assert not code(hashed_as) or hashlib.sha256(code(hashed_as).encode()).hexdigest() == code(digest), sent
    for text, digest, signature in signed:
        assert hashlib.sha256(code(text).encode()).hexdigest() == code(digest)
        assert hmac.new(b"integrity-key", code(text).encode(), "sha256").hexdigest() == code(signature)


def test_ids_of_deltas() -> None:
    rows = [row for row in tables(DOCS / "reference/deltas.md", 2) if re.fullmatch(f"`{DIGEST}`", row[1])]
    assert len(rows) == 10
    [both] = [code(row[0]) for row in rows if "completed" in row[0]]
    for case, name in rows:
        text = code(case) if case.startswith("`") else json.dumps(json.loads(both)[::-1])
        delta = {"clientId": CLIENT, "hlc": HLC, "rowId": ROW, "table": TABLE, "columns": json.loads(text)}
        assert delta_id(delta) == code(name), case


def test_codes_and_states_of_the_ledger() -> None:
    page = DOCS / "reference/ledger.md"
    rows = tables(page, 5)
    codes = [row for row in rows if row[1].isdigit() and not re.search(r"` \d", row[0])]
    assert [(code(row[0]), int(row[1])) for row in codes] == [(one.name, one.value) for one in WriteErrorCode]
    written = set()
    for row in (one for one in rows if re.match(r"`[A-Z_]+` \d+", one[0])):
        names = re.findall(r"`([A-Z_]+)` (\d+)", row[0])
        written |= {
            (name, int(number), int(http)) for (name, number), http in zip(names, row[1].split(", "), strict=True)
        }
    kinds = [one for one in REGISTRY.values() if one.code.startswith("ledger:") and one.name != "method_not_allowed"]
    assert written == {(kind.grpc.name, kind.grpc.value, kind.status) for kind in kinds}
    states = {name for row in tables(page, 3) for name in re.findall(r"`([A-Z_]+)`", row[0])}
    assert {status.name for status in (*ORG_STATUSES, *VAULT_STATUSES)} <= states


# -- the library -------------------------------------------------------------------------------------------------------


def test_every_option_of_the_outbox_has_its_row_with_its_default() -> None:
    table = prose(DOCS / "once/outbox.md").partition("| option of `Outbox` |")[2].partition("\n\n")[0]
    rows = {name: row for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.partition(" | ")[0])}
    options = {
        name: one.default for name, one in inspect.signature(Outbox).parameters.items() if one.kind is one.KEYWORD_ONLY
    }
    assert set(rows) == set(options)
    for name, default in options.items():
        if isinstance(default, str | int):
            assert str(default) in rows[name], name


def test_the_outbox_judges_answers_as_it_is_said() -> None:
    rows = [row for row in tables(DOCS / "once/outbox.md", 4) if row[1] in ("done", "retried", "poison")]
    told = {int(status): row for row in rows for status in re.findall(r"\b\d{3}\b(?! with| whose)", row[0])}
    assert {status for status, row in told.items() if row[1] == "retried" and status < 500} == RETRIED
    leased = LeasedMessage(1, "me", OutboxMessage("k", "POST", "http://x/", {}, b"", b""), 1, 0, 0.0)
    for status, row in told.items():
        fate = judged(Delivery(status), leased, RetryWaits(), random.Random(1))
        assert [fate.refusals == 1, fate.may_have_arrived] == [cell == "yes" for cell in row[2:]], status


def test_options_codes_and_headers_of_the_proxy() -> None:
    page = prose(DOCS / "once/proxy.md")
    options = {flag for one in proxy.params if isinstance(one, click.Option) for flag in one.opts}
    assert set(re.findall(r"`(--[\w-]+)", page)) <= options
    assert set(re.findall(r"SEMEL_PROXY_(\w+)", page)) <= {"UPSTREAM", "STORE", "ROUTES", "ON_CRASH", *VARIABLES}
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src/semel").glob("[op][nr]*/*.py"))
    assert [one for one in re.findall(r"[45]\d\d `(\w+)`", page) if f'"{one}"' not in source] == []
    [removed] = [row[0] for row in tables(DOCS / "once/proxy.md", 3) if row[0].startswith("`Connection`")]
    assert {name.lower().encode() for name in re.findall(r"`([\w-]+)`", removed)} == HOP_BY_HOP
    [row] = [row for row in tables(DOCS / "once/proxy.md", 3) if row[0].startswith("2xx, 3xx")]
    assert {int(status) for status in re.findall(r"\d{3}", row[2])} == PASSING


def test_every_option_of_the_pytest_plugin_has_its_row_with_its_default() -> None:
    rows = {code(row[0]): row[1] for row in tables(DOCS / "once/testing.md", 3) if row[0].startswith("`")}
    options = set(inspect.signature(assert_idempotent).parameters) - {"call"}
    assert options <= set(rows)
    assert rows["racers"] == str(idempotency.RACERS)
    assert rows["timeout"] == f"{idempotency.TIMEOUT_SECONDS:g} s"
    assert rows["patience"] == f"{idempotency.PATIENCE_SECONDS:g} s"
    assert rows["max_places"] == str(idempotency.MAX_PLACES)

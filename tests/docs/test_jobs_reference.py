"""What is said of jobs is true where it can be checked: paths, hashes, signatures, metrics, audit lines and tables."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

import httpx

from semel.surfaces.jobs.audit_trail import ENTRIES, JobAuditPace
from semel.surfaces.jobs.limits import JobPolicy
from semel.surfaces.jobs.metrics import COUNTS, GAUGES, HITS, SECONDS
from semel.surfaces.jobs.tables import TABLES
from semel.surfaces.jobs.wire.fields import parse_members
from semel.surfaces.jobs.wire.submission import parse_draft
from tests.docs.test_docs import DOCS, code, tables
from tests.harness.server import RunningServer

PAGE = DOCS / "reference/jobs.md"
SOME = {"job_id": "job_" + 32 * "0", "queue": "images", "name": "nightly"}
DIGEST = r"[0-9a-f]{64}"
PACES = {JobAuditPace.FIRST: "before the", JobAuditPace.SOON: "within a second", JobAuditPace.RARELY: "rarely"}


def test_paths_have_the_methods_that_are_shown(tmp_path: Path) -> None:
    shown: dict[str, set[str]] = {}
    for paths, methods, *_ in tables(PAGE, 4):
        for path in re.findall(r"`(/(?:v1|mesh)[^`]*)`", paths):
            shown.setdefault(path, set()).update(methods.split(", "))
    assert len(shown) > 20
    with RunningServer(tmp_path / "data", env={"SEMEL_STORE": "memory:"}) as server:
        for path, wanted in shown.items():
            answer = httpx.patch(server.url + path.format(**SOME))
            assert set(answer.headers["allow"].split(", ")) == wanted, path


def test_hashes() -> None:
    rows = [row for row in tables(PAGE, 3) if re.fullmatch(DIGEST, code(row[2])) and '"kind"' in row[0]]
    assert len(rows) == 6
    for sent, hashed_as, digest in rows:
        draft = parse_draft(parse_members(code(sent).encode()), None, b"default", JobPolicy(), bytes(8))
        assert draft.payload_hash.hex() == code(digest), sent
        if code(hashed_as):
            assert hashlib.sha256(code(hashed_as).encode()).hexdigest() == code(digest), sent


def test_signatures() -> None:
    rows = [row for row in tables(PAGE, 3) if re.fullmatch(DIGEST, code(row[2])) and '"job_id"' in row[0]]
    assert len(rows) == 2
    for signed, digest, signature in rows:
        text = code(signed).encode()
        assert hashlib.sha256(text).hexdigest() == code(digest)
        assert hmac.new(b"integrity-key", text, "sha256").hexdigest() == code(signature)


def test_every_metric_of_jobs_is_named() -> None:
    text = PAGE.read_text("utf-8").partition("## Metrics")[2]
    counts = [one for one in COUNTS if one.series.startswith("semel_jobs_")]
    names = {name for one in counts for name in one.json} | {name for one in GAUGES for name in one.json} | {HITS}
    series = {f"{one.series}_total" for one in counts} | {one.series for one in GAUGES} | {one[1] for one in SECONDS}
    assert names | series <= set(re.findall(r"`(\w+)`", text))


def test_every_table_of_jobs_has_its_row() -> None:
    rows = tables(DOCS / "internals/surface-jobs.md", 3)
    assert [code(row[0]) for row in rows if row[0].startswith("`job")] == [table.name for table in TABLES]


def test_every_audit_line_of_jobs_has_its_row() -> None:
    rows = {code(row[0]): row for row in tables(DOCS / "operating/audit.md", 4)}
    for event, entry in ENTRIES.items():
        _, _, details, written = rows[event]
        assert written.startswith(PACES[entry.pace]), event
        assert ("`remote_addr`" in details, "`path`" in details) == (entry.has_address, entry.has_path), event

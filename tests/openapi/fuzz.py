"""Schemathesis over the document, against a real server: requests made from it, answers judged by it.

The server holds a stream, a subscription, a group, jobs, an organization and more, and their names are among those that
are tried. What never ends by itself (event streams, waits of up to 30 seconds) is taken out of the document first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from semel.server.api_document import api_document

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
ENDLESS = "blocks:watch"
LIVE = {"live", "Last-Event-ID"}
WAITED_MS = 5


class FuzzReport(NamedTuple):
    """What came of a run."""

    code: int
    text: str


def fill(url: str) -> dict[str, list[Any]]:
    """Make one thing of each kind, and return the values of path parameters that name them."""
    with httpx.Client(base_url=url, timeout=30) as client:
        json_type = {"content-type": "application/json"}

        def sent(method: str, path: str, body: object = None) -> Any:
            answer = client.request(method, path, content=json.dumps(body), headers=json_type)
            assert answer.is_success, (method, path, answer.status_code, answer.text)
            return answer.json() if answer.content else None

        sent("PUT", "/v1/stream/orders", [1, 2])
        pull = {"type": "pull-wake", "streams": ["orders"], "wake_stream": "wakes"}
        sent("PUT", "/v1/stream/__ds/subscriptions/sub", pull)
        sent("POST", "/v1/events", {"events": [{"id": "e1", "partitions": ["p"], "event": {"type": "t"}}]})
        job = sent("POST", "/v1/jobs", {"kind": "k"})
        sent("PUT", "/v1/jobs/queues/q", {"max_inflight": 3})
        sent("PUT", "/v1/jobs/schedules/nightly", {"cron": "@daily", "kind": "k"})
        org = sent("POST", "/ledger/v1/orgs", {"name": "shop"})["slug"]["slug"]
        vault = sent("POST", f"/ledger/v1/orgs/{org}/vaults", {})["vault"]["slug"]
        write = {"clientId": "c", "sequence": 1, "operations": [{"setEntity": {"key": "k", "value": "AA=="}}]}
        for place in (f"orgs/{org}", f"orgs/{org}/vaults/{vault}"):
            sent("POST", f"/ledger/v1/{place}/writes", write)
        columns = [{"name": "title", "type": "string"}]
        sent("POST", "/v1/admin/schema/gw", {"table": "todos", "columns": columns})
    return {
        "name": ["orders", "nightly"],
        "id": ["sub", "e1"],
        "stream": ["orders"],
        "job_id": [job["job_id"]],
        "queue": ["q"],
        "org": [int(org)],
        "vault": [int(vault)],
        "key": ["k"],
        "clientId": ["c"],
        "height": [1],
        "gateway": ["gw"],
    }


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _dicts(one)


def bounded(known: dict[str, list[Any]]) -> dict[str, Any]:
    """The document without what never ends, and with known names among those of path parameters."""
    document: dict[str, Any] = json.loads(api_document())
    document["paths"] = {path: one for path, one in document["paths"].items() if ENDLESS not in path}
    parameters = document["components"]["parameters"]
    gone = {f"#/components/parameters/{key}" for key, one in parameters.items() if one["name"] in LIVE}
    for one in _dicts(document):
        if isinstance(one.get("parameters"), list):
            one["parameters"] = [ref for ref in one["parameters"] if ref["$ref"] not in gone]
        content = one.get("content")
        if isinstance(content, dict) and len(content) > 1:
            content.pop("text/event-stream", None)
        if isinstance(one.get("wait_ms"), dict):
            one["wait_ms"]["maximum"] = WAITED_MS
    for one in parameters.values():
        if one["name"] == "wait_ms":
            one["schema"]["maximum"] = WAITED_MS
        if one["in"] == "path" and one["name"] in known:
            one["schema"] = {"anyOf": [{"enum": known[one["name"]]}, one["schema"]]}
    return document


def thin_out(document: dict[str, Any], each: int) -> None:
    """Leave one operation of so many."""
    operations = [
        (path, method)
        for path, one in document["paths"].items()
        for method, operation in one.items()
        if isinstance(operation, dict)
    ]
    for path, method in set(operations) - set(operations[::each]):
        del document["paths"][path][method]


def run(url: str, folder: Path, *, examples: int, seed: int, phases: str, each: int = 1) -> FuzzReport:
    """Run schemathesis on one operation of so many; its exit code is 0 if every answer is as the document says."""
    path = folder / "openapi.json"
    document = bounded(fill(url))
    thin_out(document, each)
    path.write_text(json.dumps(document))
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", str(path), "--url", url),
        *("--phases", phases, "--checks", ",".join(CHECKS), "--seed", str(seed), "--max-examples", str(examples)),
        *("--request-timeout", "60", "--continue-on-failure", "--workers", "1", "--generation-database", "none"),
        *("--warnings", "off"),
    ]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HYPOTHESIS")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, check=False)
    return FuzzReport(done.returncode, done.stdout + done.stderr)

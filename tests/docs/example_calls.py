"""What makes the real thing of which a page shows an example: one function for each block of JSON.

A function is given what is shown, so that it sends what the page sends.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import httpx
import jwt
import pytest

from docs.site.stage import ROOT
from semel.server.ops.access_log import ACCESS_NAME
from tests.cli.command import Semel
from tests.deltas.vectors import delta_id
from tests.docs.example_site import SECRET, TOKENS, ExampleSite
from tests.docs.reader import Block, blocks
from tests.harness.together import eventually
from tests.streams.subscriptions.receiver import Receiver


def example(page: str, part: str) -> Any:
    """The JSON of the one block that has this part."""
    [found] = [one for one in of_page(page) if part in one.text]
    return json.loads(found.text)


def of_page(page: str) -> list[Block]:
    """The blocks of JSON of a page."""
    return [one for one in blocks((ROOT / page).read_text("utf-8")) if one.language == "json"]


# -- files ------------------------------------------------------------------------------------------------------------


def audit_line(site: ExampleSite, shown: Any) -> Any:
    assert site.send("GET", shown["details"]["path"], token="a-wrong-token").status_code == 401
    return site.line("logs/audit.jsonl", lambda line: line["event"] == "AUTH_FAILURE")


def alert(site: ExampleSite, shown: Any) -> Any:
    """The burst that the page shows: its lines, and what the command makes of them."""
    details, folder = shown["details"], site.folder / "watched"
    (folder / "logs").mkdir(parents=True)
    failed = {"ts": shown["ts"], "event": "AUTH_FAILURE", "details": {"remote_addr": details["remote_addr"]}}
    (folder / "logs/audit.jsonl").write_text(f"{json.dumps(failed)}\n" * details["count"])
    assert Semel(site.server.url).here("audit", "watch", "--data", str(folder), "--once").code == 0
    [line] = (folder / "logs/alerts.jsonl").read_text("utf-8").splitlines()
    return json.loads(line)


def access_line(site: ExampleSite, shown: Any) -> Any:
    site.sent("PUT", "/v1/stream/logged")
    given = {"token": TOKENS["billing"], "traceparent": shown["traceparent"]}
    site.sent(shown["method"], "/v1/stream/logged", {"n": 1}, **given)
    return site.line(f"logs/{ACCESS_NAME}", lambda line: "traceparent" in line)


def last_line_of_the_log(site: ExampleSite, shown: Any) -> Any:
    with ExampleSite(site.folder / "stopped").server as server:
        server.stop()
        return json.loads(server.output.read_text("utf-8").splitlines()[-1])


# -- answers ----------------------------------------------------------------------------------------------------------


def not_ready(site: ExampleSite, shown: Any) -> Any:
    """The disk has fewer bytes free than the setting asks for."""
    site.set(f"ready_free_bytes = {1 << 62}\n")
    found: list[httpx.Response] = []

    def is_told() -> bool:
        found[:] = [site.send("GET", "/readyz")]
        return bool(found[0].status_code == 503)

    eventually(is_told, "it is not ready")
    site.set("ready_free_bytes = 0\n")
    return found[0].json()


def found_write(site: ExampleSite, shown: Any) -> Any:
    """A job that was submitted twice, and is completed."""
    [write] = shown["writes"]
    job = {"kind": write["effect"]["job_kind"], "queue": write["effect"]["queue"], "idempotency_key": shown["id"]}
    for _ in range(2):
        site.sent("POST", "/v1/jobs", job, token=TOKENS["billing"])
    [lease] = site.sent("POST", "/v1/jobs/claim", {"worker_id": "w", "queues": [job["queue"]]})["jobs"]
    done = {"lease_token": lease["lease_token"], "result": {}}
    site.sent("POST", f"/v1/jobs/{lease['job_id']}/complete", done)
    path = f"/v1/writes/{shown['id']}"
    eventually(lambda: site.sent("GET", path)["writes"][0]["retries"]["count"] == 1, "the retry is noted")
    by_post = site.sent("POST", "/v1/writes/find", {"id": shown["id"]})
    assert by_post == site.sent("GET", path)
    return by_post


def find_it(site: ExampleSite, line: str) -> str:
    """What `semel find` of the page prints."""
    semel = Semel(site.server.url, {"SEMEL_TOKEN": TOKENS["operator"]})
    run = semel.here(*shlex.split(line)[1:])
    assert run.code == 0, run.err
    return run.out


def listed_stream(site: ExampleSite, shown: Any) -> Any:
    site.sent("PUT", f"/v1/stream/{shown['name']}")
    site.sent("POST", f"/v1/stream/{shown['name']}", {"item": "tea"})
    [stream] = site.sent("GET", f"/v1/streams?prefix={shown['name']}&limit=1")["streams"]
    return stream


def listed_producers(site: ExampleSite, shown: Any) -> Any:
    [producer] = shown["producers"]
    site.sent("PUT", "/v1/stream/tills")
    for number in range(producer["seq"] + 1):
        headers = {"producer_id": producer["id"], "producer_epoch": str(producer["epoch"])}
        site.sent("POST", "/v1/stream/tills", {}, **headers, producer_seq=str(number))
    return site.sent("GET", "/v1/streams/producers?stream=tills")


def webhook(site: ExampleSite, shown: Any) -> Any:
    """The first wake of a subscription to the stream that is shown."""
    [stream] = shown["streams"]
    pattern = stream["path"].partition("/")[0] + "/*"
    name = shown["subscription_id"]
    with Receiver() as receiver:
        record = {"type": "webhook", "pattern": pattern, "webhook": {"url": receiver.url}}
        site.sent("PUT", f"/v1/stream/__ds/subscriptions/{name}", record)
        site.sent("PUT", f"/v1/stream/{stream['path']}")
        site.sent("POST", f"/v1/stream/{stream['path']}", {"item": "tea"})
        [delivery, *_] = receiver.wait(1)
        site.sent("DELETE", f"/v1/stream/__ds/subscriptions/{name}")
    assert re.fullmatch(r"t=\d+,kid=[\w-]+,ed25519=[\w-]+", delivery.signature)
    return delivery.body


def reused_key(site: ExampleSite, shown: Any) -> Any:
    site.sent("PUT", "/v1/stream/reused")
    site.sent("POST", "/v1/stream/reused", {"n": 1}, idempotency_key="order-1")
    return site.send("POST", "/v1/stream/reused", {"n": 2}, idempotency_key="order-1").json()


def lost_lease(site: ExampleSite, shown: Any) -> Any:
    site.sent("POST", "/v1/jobs", {"kind": "charge", "queue": "lost", "idempotency_key": "order-2"})
    [lease] = site.sent("POST", "/v1/jobs/claim", {"worker_id": "w", "queues": ["lost"]})["jobs"]
    path = f"/v1/jobs/{lease['job_id']}"
    site.sent("POST", f"{path}/complete", {"lease_token": lease["lease_token"], "result": {}})
    return site.send("POST", f"{path}/heartbeat", {"lease_token": lease["lease_token"]}).json()


def place(site: ExampleSite) -> str:
    """The path of a new vault."""
    org = site.sent("POST", "/ledger/v1/orgs", {"name": "shop"})["slug"]["slug"]
    vault = site.sent("POST", f"/ledger/v1/orgs/{org}/vaults", {})["vault"]["slug"]
    return f"/ledger/v1/orgs/{org}/vaults/{vault}"


def set_entity(number: int) -> dict[str, Any]:
    return {
        "clientId": "till-3",
        "sequence": str(number),
        "operations": [{"setEntity": {"key": "ada", "value": "MTA="}}],
    }


def refused_client(site: ExampleSite, shown: Any) -> Any:
    return site.send("POST", f"{place(site)}/writes", set_entity(1) | {"clientId": "x" * 257}).json()


def many_transactions(site: ExampleSite, shown: Any) -> Any:
    """The request that is shown above this answer, after the transactions that the guide has made."""
    request = example("docs/guide/ledger.md", '{"transactions": [')
    path, first = place(site), int(request["transactions"][0]["sequence"])
    for number in range(1, first):
        site.sent("POST", f"{path}/writes", set_entity(number))
    return site.sent("POST", f"{path}/writes:bulk", request)


def merged_rows(site: ExampleSite, shown: Any) -> Any:
    """The rows of the delta that the page shows next."""
    delta = example("docs/reference/deltas.md", '{"op": "INSERT"')
    pushed(site, "rows", delta)
    return site.sent("GET", "/v1/admin/rows/rows?table=todos")


# -- requests: the answer says that they were taken --------------------------------------------------------------------


def pushed(site: ExampleSite, gateway: str, delta: Any) -> Any:
    return site.sent("POST", f"/v1/sync/{gateway}/push", {"clientId": delta["clientId"], "deltas": [delta]})


def one_delta(site: ExampleSite, shown: Any) -> Any:
    """A delta is taken with its id, and refused with another content."""
    pushed(site, "deltas", shown)
    [entry] = site.sent("GET", "/v1/sync/deltas/pull?clientId=another&since=0")["deltas"]
    with pytest.raises(AssertionError, match="422"):
        pushed(site, "deltas", shown | {"columns": []})
    return entry


def sync_rules(site: ExampleSite, shown: Any) -> Any:
    """The rules are taken, and a client sees its own rows and those of every client, and no others."""
    mine, everyone = shown["buckets"]
    gateway = f"rules-{everyone['name']}"
    site.sent("POST", f"/v1/admin/sync-rules/{gateway}", shown)
    [column] = [one["column"] for one in mine["filters"]]
    rows = [(mine["tables"][0], "a"), (mine["tables"][0], "b"), (everyone["tables"][0], "b")]
    for number, (table, owner) in enumerate(rows):
        delta = {"table": table, "rowId": f"r{number}", "clientId": "another", "hlc": str(number)}
        delta["columns"] = [{"column": column, "value": owner}]
        pushed(site, gateway, delta | {"op": "INSERT", "deltaId": delta_id(delta)})
    claims = {"sub": "a", "gw": gateway, "exp": 4_102_444_800}
    seen = site.sent(
        "GET", f"/v1/sync/{gateway}/pull?clientId=a&since=0", token=jwt.encode(claims, SECRET, algorithm="HS256")
    )["deltas"]
    assert [one["rowId"] for one in seen] == ["r0", "r2"]
    return shown


def bulk_request(site: ExampleSite, shown: Any) -> Any:
    """`many_transactions` sends it: here it is only one of its kind."""
    results = many_transactions(site, None)["results"]
    assert [one["status"] for one in results] == [200, 412]
    return shown

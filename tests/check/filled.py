"""A store that was filled by real use of all five surfaces: by a server, over HTTP, as its clients use it."""

from __future__ import annotations

from typing import Any

import httpx

from semel import Client
from semel.client import DeleteKey, EventDraft, Relate, SetKey
from tests.deltas.vectors import columns, delta, now_ms, stamp
from tests.harness.server import RunningServer
from tests.jobs.wire import PATH, Jobs

LARGE = "x" * 6_000
"""More than a row holds itself: of a job, of the operations of a block, and of the value of an entity."""
BLOCKS = 70
"""The roots of all buckets are stored at height 64."""
ENV = {"SEMEL_SWEEP_INTERVAL_MS": "200"}


def fill(server: RunningServer, number: int = 0) -> None:
    """Use every surface; with another number, under other names."""
    with Client(server.url) as client:
        fill_streams(client, f"{number}/")
        fill_events(client, f"-{number}")
        fill_ledger(client, f"-{number}")
    jobs = Jobs(server)
    with jobs.http:
        fill_jobs(jobs, f"q{number}")
    with httpx.Client(base_url=server.url, timeout=30) as http:
        fill_deltas(http, f"gw{number}")


def fill_streams(client: Client, at: str) -> None:
    """Streams of both kinds, with keys, producers, forks of forks, a closed one, deleted ones, and retention."""
    streams = client.streams
    streams.create(f"{at}text", content_type="text/plain")
    for place in range(12):
        streams.append(f"{at}text", f"line {place}\n", key=f"{at}key-{place}" if place % 2 else None)
    streams.create(f"{at}json", content_type="application/json")
    for place in range(6):
        streams.append_many(f"{at}json", [{"n": place}, {"m": place}], key=f"{at}many-{place}")
    producer = streams.producer(f"{at}text", "till", epoch=1, content_type="text/plain")
    for place in range(3):
        producer.append(f"produced {place}\n".encode())
    page = streams.read(f"{at}text")
    streams.fork(f"{at}text", f"{at}fork")
    streams.append(f"{at}fork", "own\n", key="own", content_type="text/plain")
    streams.fork(f"{at}fork", f"{at}fork-of-fork")
    streams.append(f"{at}fork-of-fork", "deeper\n", content_type="text/plain")
    streams.append(f"{at}text", "after the fork\n", key=f"{at}after", content_type="text/plain")
    streams.fork(f"{at}json", f"{at}json-fork")
    streams.delete(f"{at}json-fork")
    streams.create(f"{at}kept", content_type="text/plain")
    streams.append(f"{at}kept", "kept for its fork\n", content_type="text/plain")
    streams.fork(f"{at}kept", f"{at}keeper")
    streams.delete(f"{at}kept")
    streams.create(f"{at}closed", content_type="text/plain")
    streams.append(f"{at}closed", "the end\n", key="end", content_type="text/plain", close=True)
    streams.create(f"{at}trimmed", content_type="text/plain", retention_bytes=40)
    for place in range(10):
        streams.append(f"{at}trimmed", f"{place} twenty bytes long", key=f"t{place}", content_type="text/plain")
    streams.create(f"{at}wakes", content_type="application/json")
    streams.subscriptions.create(f"{at.strip('/')}sub", pattern=f"{at}text", wake_stream=f"{at}wakes")
    streams.append(f"{at}text", "woken\n", content_type="text/plain")
    assert page.data


def fill_events(client: Client, at: str) -> None:
    """Events in several partitions."""
    drafts = [
        EventDraft("made", {"n": place, "text": "é"}, [f"p{place % 3}{at}", f"all{at}"], id=f"event-{place}{at}")
        for place in range(20)
    ]
    client.events.submit_many(drafts)


def fill_jobs(jobs: Jobs, queue: str) -> None:
    """Jobs in every state: waiting, scheduled, leased, completed, failed, dead; groups, children and aliases."""
    for place in range(6):
        jobs.submit("echo", {"n": place}, key=f"{queue}-key-{place}", queue=queue, priority=place % 3)
    jobs.submit("large", {"text": LARGE}, key=f"{queue}-large", queue=queue)
    jobs.submit("later", {}, key=f"{queue}-later", queue=queue, delay_ms=3_600_000)
    for _ in range(3):
        jobs.complete(jobs.claim_one(queue), {"done": LARGE})
    jobs.fail(jobs.claim_one(queue), retryable=False)
    jobs.claim_one(queue)
    for place in range(2):
        jobs.submit("brief", {}, key=f"{queue}-made-up-{place}", queue=f"{queue}-brief", generated_key=True)
    jobs.complete(jobs.claim_one(f"{queue}-brief"), "c")
    for place in range(2):
        jobs.submit("once", {}, key=f"{queue}-unique-{place}", queue=f"{queue}-unique", unique={"key": "u"})
    group = jobs.submit("join", {}, queue=f"{queue}-join", join={})["job_id"]
    for _ in range(3):
        jobs.submit("member", {}, queue=f"{queue}-members", group=group)
    jobs.complete(jobs.claim_one(f"{queue}-members"), "a")
    jobs.submit("parent", {}, queue=f"{queue}-parent")
    parent = jobs.claim_one(f"{queue}-parent")
    under = {"job_id": parent["job_id"], "lease_token": parent["lease_token"]}
    for name in ("a", "b"):
        jobs.submit("child", {}, queue=f"{queue}-children", parent={**under, "name": name})
    jobs.post(f"{PATH}/{parent['job_id']}/defer", {"lease_token": parent["lease_token"], "wait_children": True})
    jobs.complete(jobs.claim_one(f"{queue}-children"), "b")


def fill_ledger(client: Client, at: str) -> None:
    """An organization with two vaults, several clients, keys, large values and operations, and removed entities."""
    org = client.ledger.create_organization(f"shop{at}", key=f"shop{at}").place.org
    vault = client.ledger.create_vault(org, key=f"vault{at}").place.vault
    short = client.ledger.create_vault(org, retained_blocks=3, key=f"short{at}").place.vault
    accounts = client.ledger.place(org, vault)
    writes: list[Any] = []
    for place in range(BLOCKS):
        operations: list[Any] = [
            SetKey(f"account-{place % 40}", f"{place}"),
            SetKey(f"second-{place % 7}", "v" * place),
        ]
        if place % 10 == 3:
            operations.append(SetKey(f"large-{place % 20}", LARGE))
        if place % 10 == 5:
            operations.append(Relate(f"doc:{place % 20}", "viewer", "user:ada"))
        if place % 10 == 7:
            operations.append(DeleteKey(f"account-{place % 40 - 4}"))
        client_name, sequence = f"till-{place % 3}", place // 3 + 1
        writes.append(accounts.write(operations, client=client_name, sequence=sequence))
    for _ in range(2):
        accounts.write([SetKey("keyed", "1")], client="keys", key="00112233-4455-6677-8899-aabbccddeeff")
    for place in range(8):
        client.ledger.place(org, short).write([SetKey(f"s{place % 2}", f"{place}")], client="short")
    client.ledger.place(org).write([SetKey("own", "scope")], client="org")
    assert len(writes) == BLOCKS


def fill_deltas(http: httpx.Client, gateway: str) -> None:
    """Rows of two tables, written by two clients, in and out of the order of their times, with deletes."""
    first = stamp(now_ms()) - 1_000
    for place in range(12):
        made = [
            delta(
                "INSERT", columns(title=f"t{place}", done=False), row=f"row-{place}", client="a", hlc=first + 2 * place
            ),
            delta("UPDATE", columns(title=f"u{place}"), row=f"row-{place}", client="a", hlc=first + 500 + place),
        ]
        _push(http, gateway, "a", made)
    late = [delta("UPDATE", columns(title="late", note="n"), row="row-1", client="b", hlc=first + 100)]
    _push(http, gateway, "b", late)
    _push(http, gateway, "b", [delta("DELETE", [], row="row-2", client="b", hlc=first + 900)])
    _push(http, gateway, "b", [delta("INSERT", columns(nested={"a": [1, 2.5]}), row="n", client="b", hlc=first + 901)])
    http.get(f"/v1/sync/{gateway}/pull?since=0&clientId=b").raise_for_status()


def _push(http: httpx.Client, gateway: str, client: str, made: list[Any]) -> None:
    http.post(f"/v1/sync/{gateway}/push", json={"clientId": client, "deltas": made}).raise_for_status()

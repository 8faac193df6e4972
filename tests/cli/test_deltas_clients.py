"""`semel deltas clients` against a real server."""

from __future__ import annotations

import json

import httpx

from tests.cli.command import SECONDS, Semel
from tests.deltas.vectors import columns, delta
from tests.harness.server import RunningServer


def push(server: RunningServer, gateway: str, client: str) -> None:
    made = delta("INSERT", columns(n=1), row=client, client=client)
    path = f"{server.url}/v1/sync/{gateway}/push"
    httpx.post(path, json={"clientId": client, "deltas": [made]}, timeout=SECONDS).raise_for_status()


def test_g3_clients_are_listed_and_forgotten(server: RunningServer, semel: Semel) -> None:
    for name in ("ann", "bob", "cyd"):
        push(server, "counted", name)
    listed = semel.here("deltas", "clients", "ls", "counted")
    assert [line.split()[-1] for line in listed.out.splitlines()] == ["ann", "bob", "cyd"]
    as_json = semel.here("deltas", "clients", "ls", "counted", "--json")
    assert [json.loads(line)["clientId"] for line in as_json.out.splitlines()] == ["ann", "bob", "cyd"]
    dry = semel.here("deltas", "clients", "rm", "counted", "ann", "--dry-run")
    assert "Would forget 1 client of counted: ann" in dry.out
    unasked = semel.here("deltas", "clients", "rm", "counted", "ann")
    assert unasked.code == 2
    assert "--yes" in unasked.err
    gone = semel.here("deltas", "clients", "rm", "counted", "ann", "nobody", "--yes", "--json")
    assert json.loads(gone.out)["forgotten"] == 1
    left = semel.here("deltas", "clients", "ls", "counted")
    assert [line.split()[-1] for line in left.out.splitlines()] == ["bob", "cyd"]


def test_g3_a_gateway_without_clients_says_so(server: RunningServer, semel: Semel) -> None:
    run = semel.here("deltas", "clients", "ls", "empty")
    assert (run.out, run.err) == ("", "No client has pushed yet.\n")

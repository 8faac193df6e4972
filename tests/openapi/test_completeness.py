"""Every route is declared, and every declaration is a route.

The routes are read from the tables by which the surfaces dispatch. A surface that has no reader of its tables here
fails, so that a new one is not passed over in silence.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from semel.engine.engine import nowhere
from semel.server.api_document import operation_groups
from semel.server.app import App
from semel.server.namespaces import build_context
from semel.server.openapi.operation import HttpOperation
from semel.server.ops import token_calls
from semel.server.settings_loader import make_settings
from semel.server.writes import find_calls
from semel.surfaces.ledger.grpc.listener import LedgerCalls
from semel.surfaces.ledger.http import LedgerHttp
from semel.surfaces.ledger.proto import ledger_pb2
from semel.surfaces.registry import SURFACES
from semel.surfaces.streams import http as streams_http
from semel.surfaces.streams.subscriptions import http as subscriptions_http

Route = tuple[str, str]
"""A method, and a path with `{}` in place of each name."""


def with_head(routes: Iterator[Route]) -> set[Route]:
    found = set(routes)
    return found | {("HEAD", path) for method, path in found if method == "GET"}


def of_streams(_: Any) -> set[Route]:
    found = {(method, f"{root.decode()}{{}}") for method in streams_http._ROLES for root in streams_http.PREFIXES} | {
        (method, path.decode()) for path in streams_http.LISTS for method in ("GET", "HEAD")
    }
    one = "/v1/stream/__ds/subscriptions/{}"
    for call, methods in subscriptions_http._METHODS.items():
        found |= {(method, f"{one}/{call}" if call else one) for method in methods}
    return found | {("DELETE", f"{one}/streams/{{}}"), *((m, "/v1/stream/__ds/jwks.json") for m in ("GET", "HEAD"))}


def of_events(surface: Any) -> set[Route]:
    found = {("GET", "/v1/events"), ("POST", "/v1/events")}
    below = {b"id": "/v1/events/id/{}", b"partitions": "/v1/events/partitions"}
    assert set(surface._below) == set(below), "a new name below /v1/events"
    found |= {(method, below[name]) for name, methods in surface._below.items() for method in methods}
    return found


def of_jobs(surface: Any) -> set[Route]:
    def routes() -> Iterator[Route]:
        for path, methods in surface._fixed.items():
            yield from ((method, path.decode()) for method in methods)
        for word, (method, _) in surface._of_a_job.items():
            yield method, f"/v1/jobs/{{}}/{word}".rstrip("/")
        for things in ("queues", "schedules"):
            yield from ((method, f"/v1/jobs/{things}/{{}}") for method in surface._of_a_thing(things, "x"))

    return with_head(routes())


def of_ledger(surface: Any) -> set[Route]:
    def routes() -> Iterator[Route]:
        org, vault, table = "/ledger/v1/orgs/{}", "/ledger/v1/orgs/{}/vaults/{}", surface._routes
        fixed = {"/ledger/v1/orgs": table.everywhere, org: table.org, vault: table.vault, f"{org}/vaults": table.vaults}
        for path, methods in fixed.items():
            yield from ((method, path) for method in methods)
        for words, methods in table.place.items():
            below = "/".join(word or "{}" for word in words)
            yield from ((method, f"{place}/{below}") for place in (org, vault) for method in methods)

    return with_head(routes())


def of_deltas(surface: Any) -> set[Route]:
    def routes() -> Iterator[Route]:
        for call, action in surface._actions.items():
            yield from ((action.method, f"{root}{call}") for root in ("/v1/", "/"))

    return with_head(routes()) | {("GET", f"{root}sync/{{}}/ws") for root in ("/v1/", "/")}


READERS: dict[str, Callable[[Any], set[Route]]] = {
    "streams": of_streams,
    "events": of_events,
    "jobs": of_jobs,
    "ledger": of_ledger,
    "deltas": of_deltas,
}


def shape_of(path: str) -> str:
    return re.sub(r"\{[^}]*\}", "{}", path)


def declared(operations: tuple[HttpOperation, ...]) -> set[Route]:
    return {(method, shape_of(one.path)) for one in operations for method in one.methods}


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    async def make() -> App:
        return App(build_context(make_settings(store=f"sqlite:{tmp_path}", data=str(tmp_path)), nowhere))

    async def stop(made: App) -> None:
        await made._context.engine.stop()
        made._context.audit.close()

    with asyncio.Runner() as runner:
        made = runner.run(make())
        yield made
        runner.run(stop(made))


def test_every_route_of_every_surface_is_declared(app: App) -> None:
    assert set(READERS) == {row.name for row in SURFACES}, "a surface whose routes are not read here"
    for row, running in app._owners:
        assert declared(row.operations) == READERS[row.name](running), row.name


def test_every_path_of_the_server_itself_is_declared(app: App) -> None:
    [own] = [group for group in operation_groups() if group.name == "server"]
    paths = {path.decode() for path in app._operations.paths}
    assert declared(own.operations) == {(method, path) for path in paths for method in ("GET", "HEAD")}


def test_every_path_of_the_stored_tokens_is_declared() -> None:
    [own] = [group for group in operation_groups() if group.name == "tokens"]
    assert declared(own.operations) == {
        (method, f"/v1/tokens{path}") for path, methods in token_calls.ROUTES.items() for method in methods
    }


def test_every_grpc_method_of_the_ledger_is_in_its_descriptor_and_every_other_is_standard(app: App) -> None:
    [ledger] = [running for row, running in app._owners if row.name == "ledger"]
    services = ledger_pb2.DESCRIPTOR.services_by_name.values()
    known = {f"/{one.full_name}/{method.name}".encode() for one in services for method in one.methods}
    served = set(LedgerCalls(cast(LedgerHttp, ledger).service).table.methods)
    assert known <= served
    assert all(path.startswith(b"/grpc.health.v1.") for path in served - known)


def test_every_path_of_the_look_ups_of_writes_is_declared() -> None:
    [own] = [group for group in operation_groups() if group.name == "writes"]
    assert declared(own.operations) == {
        (method, f"/v1/writes/{path}") for path, methods in find_calls.ROUTES.items() for method in methods
    }


def test_a_route_without_a_declaration_is_noticed(app: App) -> None:
    for row, running in app._owners:
        assert declared(row.operations[1:]) != READERS[row.name](running), row.name

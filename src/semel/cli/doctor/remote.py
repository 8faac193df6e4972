"""Checks of the server at the URL: reachable, ready for writes, and the caller's credential."""

from __future__ import annotations

import json
from collections.abc import Iterator

from semel.cli.connection import Connection
from semel.cli.doctor.check import Check, ok, problem
from semel.cli.failures import RefusedError, RequestError, UnreachableError
from semel.cli.output import printable


def check_server(connection: Connection) -> Iterator[Check]:
    """The checks of the server; when none answers, only that."""
    reached = _check_reach(connection)
    yield reached
    if reached.is_ok:
        yield _check_readiness(connection)
        yield _check_credential(connection)


def _check_reach(connection: Connection) -> Check:
    url = connection.address.url
    try:
        version = json.loads(connection.request("GET", "/livez").body)["version"]
    except UnreachableError as error:
        advice = "Start one with `semel serve`, or name another with --url or SEMEL_URL."
        return problem("server", printable(f"no server answers at {url} ({error.__cause__})"), advice)
    except (RequestError, ValueError, KeyError, TypeError):
        return problem("server", f"what answers at {url} is not Semel", "Check --url or SEMEL_URL.")
    return ok("server", printable(f"version {version} at {url}"))


def _check_readiness(connection: Connection) -> Check:
    try:
        connection.request("GET", "/readyz")
    except RequestError:
        return problem("readiness", "it takes no writes now", "Wait for its restart, or read its log.")
    return ok("readiness", "it takes writes")


def _check_credential(connection: Connection) -> Check:
    try:
        connection.request("GET", "/v1/streams?limit=1")
    except RefusedError as error:
        if error.status == 401:
            return problem("credential", error.message, "Put a token into SEMEL_TOKEN, or name its file: --token-file.")
    except UnreachableError as error:
        return problem("credential", error.message, "Run this again.")
    return ok("credential", "accepted")

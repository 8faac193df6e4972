"""Every operation that a quota can refuse answers with 429, and the document says so."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semel.server.api_document import api_document, operation_groups
from semel.server.openapi.operation import HttpAccess, HttpOperation
from tests.harness.server import HOST
from tests.openapi.test_completeness import HANDSHAKE, filled
from tests.server.quotas.site import Site, auth, served

DOCUMENT: dict[str, Any] = json.loads(api_document())
CALLS = [(one, method) for group in operation_groups() for one in group.operations for method in one.methods]
CHECKED = (HttpAccess.CREDENTIAL, HttpAccess.API_KEY)
"""Operations that check a credential of the server, whose principal may have quotas."""
REFUSALS = {"quota_exceeded", "resource_exhausted"}
"""The codes of a quota, in lower case: surfaces show theirs in either."""


def documented(one: HttpOperation, method: str) -> set[str]:
    """The codes of 429 that the document has for an operation."""
    responses = DOCUMENT["paths"][one.path][method.lower()]["responses"]
    if "429" not in responses:
        return set()
    place = responses["429"]["$ref"].rpartition("/")[2]
    return {code.lower() for code in DOCUMENT["components"]["responses"][place]["x-error-codes"]}


def named(number: int) -> str:
    return f"principal-{number}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A principal for each call: more than a few refusals a second of the same one are answered late."""
    folder: Path = tmp_path_factory.mktemp("refusals")
    with served(folder, {named(number): {"connections": 1} for number in range(len(CALLS))}) as made:
        yield made


def refused(site: Site, name: str, one: HttpOperation, method: str) -> tuple[int, bytes]:
    """The answer on a second connection of a principal that may have one."""
    first, second = (http.client.HTTPConnection(HOST, site.server.port, timeout=60) for _ in range(2))
    try:
        first.request("GET", "/metrics", headers=auth(name))
        assert first.getresponse().read()
        body = b"{}" if one.body is not None else None
        headers = auth(name) | ({"content-type": "application/json"} if body else {})
        # The path of events answers plain requests, too; its WebSocket checks the credential in the first message.
        is_handshake = one.is_websocket and one.id != "readEvents"
        second.request(method, filled(one.path), body, headers | (HANDSHAKE if is_handshake else {}))
        answer = second.getresponse()
        return answer.status, b"" if answer.status == 101 else answer.read()
    finally:
        first.close()
        second.close()


def test_every_operation_that_a_quota_refuses_has_it_in_the_document(site: Site) -> None:
    wrong = []
    for number, (one, method) in enumerate(CALLS):
        status, body = refused(site, named(number), one, method)
        codes = documented(one, method) & REFUSALS
        if (status == 429) != bool(codes):
            wrong.append(f"{one.id} {method}: {status}, and the document has {sorted(codes)}")
        if status == 429 and body and not any(code.encode() in body.lower() for code in codes):
            wrong.append(f"{one.id} {method}: {body!r:.120} has none of {sorted(codes)}")
        if (status == 429) != (one.access in CHECKED):
            wrong.append(f"{one.id} {method}: {status}, and it takes {one.access.value}")
    assert not wrong, "\n".join(wrong)

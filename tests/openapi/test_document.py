"""The document is valid, small, the same each time, and served without a credential on both listeners."""

from __future__ import annotations

import http.client
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from semel.kernel.errors import REGISTRY
from semel.server.api_document import api_document, operation_groups
from semel.server.openapi.document import DocumentError, OperationGroup, openapi_bytes, openapi_document
from semel.server.openapi.operation import NamedSchema
from tests.harness.server import HOST, RunningServer, free_port

DOCUMENT: dict[str, Any] = json.loads(api_document())
MOST_BYTES = 400_000


def test_the_document_is_valid() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_the_same_operations_give_the_same_bytes_and_not_too_many() -> None:
    assert openapi_bytes(operation_groups(), DOCUMENT["info"]["version"]) == api_document()
    assert len(api_document()) < MOST_BYTES


def test_ids_and_paths_are_unique() -> None:
    counted = Counter(one.id for group in operation_groups() for one in group.operations)
    assert [name for name, count in counted.items() if count > 1] == []


@pytest.mark.parametrize("group", operation_groups(), ids=lambda group: group.name)
def test_codes_are_those_of_the_registry(group: OperationGroup) -> None:
    used = {error.code for one in group.operations for error in one.errors}
    assert used <= set(REGISTRY)
    own = {code for code in REGISTRY if code.startswith(f"{group.name}:")}
    # A code that no HTTP answer has is one of another wire.
    assert own - used <= {"ledger:unimplemented"}


def test_two_schemas_of_one_name_are_refused() -> None:
    group = operation_groups()[0]
    one = group.operations[0]
    success = one.successes[0]._replace(schema=NamedSchema("Health", {"type": "null"}))
    changed = group._replace(operations=(one, one._replace(id="other", path="/other", successes=(success,))))
    with pytest.raises(DocumentError, match="Health"):
        openapi_document([changed], "1")


def test_an_operation_that_is_declared_twice_is_refused() -> None:
    group = operation_groups()[0]
    with pytest.raises(DocumentError, match="twice"):
        openapi_document([group, group], "1")


def got(port: int, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        connection.request(method, "/openapi.json", headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_it_is_served_to_everyone_on_both_listeners(tmp_path: Path) -> None:
    control = free_port()
    env = {"SEMEL_CONTROL_PORT": str(control), "SEMEL_TOKEN_ACTIVE": "secret-token-of-this-test"}
    with RunningServer(tmp_path / "data", env=env) as server:
        for port in (server.port, control):
            status, headers, body = got(port)
            assert (status, body) == (200, api_document())
            assert headers["content-type"] == "application/json"
            assert b"secret-token" not in body
            assert got(port, "HEAD")[0] == 200
            assert got(port, if_none_match=headers["etag"])[::2] == (304, b"")
            assert got(port, "POST")[0] == 405

"""Requests made from the document get no 500, and no status, media type or body that the document does not have.

A run tries a seventh of the operations of each surface, by the day.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from semel.server.api_document import api_document, operation_groups
from tests.harness.server import RunningServer
from tests.harness.share import ALL, DAYS, VARIABLE
from tests.openapi.fuzz import deal_out, run

SEED = 20


@pytest.mark.timeout(900)
@pytest.mark.parametrize("tag", [group.name for group in operation_groups()])
def test_every_answer_is_as_the_document_says(tmp_path: Path, tag: str) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_TOKEN_REQUIRED": "0"}) as server:
        report = run(server.url, tmp_path, examples=5, seed=SEED, phases="coverage,fuzzing", only=tag, by_day=True)
    assert report.code == 0, report.text
    assert "passed" in report.text


def tagged(document: dict[str, Any], tag: str) -> set[tuple[str, str]]:
    """The operations of a tag in a document."""
    return {
        (path, method)
        for path, one in document["paths"].items()
        for method, operation in one.items()
        if isinstance(operation, dict) and tag in operation["tags"]
    }


@pytest.mark.parametrize("tag", [group.name for group in operation_groups()])
def test_a_week_tries_every_operation(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {}
    for day in (ALL, *map(str, range(DAYS))):
        monkeypatch.setenv(VARIABLE, day)
        document = json.loads(api_document())
        deal_out(document, tag)
        shares[day] = tagged(document, tag)
    assert shares.pop(ALL) == tagged(json.loads(api_document()), tag) == set().union(*shares.values())
    assert all(shares.values())

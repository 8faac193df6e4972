"""Requests made from the document get no 500, and no status, media type or body that the document does not have.

Here it is one operation of seven; `make nightly NAME=openapi` tries all of them, with more examples and other seeds.
What each operation answers to bad input is in `tests/openapi/test_every_operation.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.server import RunningServer
from tests.openapi.fuzz import run

SEED, EACH = 20, 7


@pytest.mark.timeout(900)
def test_answers_are_as_the_document_says(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_TOKEN_REQUIRED": "0"}) as server:
        report = run(server.url, tmp_path, examples=3, seed=SEED, phases="coverage,fuzzing", each=EACH)
    assert report.code == 0, report.text
    assert "passed" in report.text

"""What is not supported is refused by a sentence, before anything is written."""

from __future__ import annotations

import re
from contextlib import ExitStack

import pytest

from semel import once
from tests.harness.postgres.shared import shared_cluster
from tests.once.compat.places import found_at, postgres_place
from tests.once.compat.refusals import REFUSED, block, opened


@pytest.fixture(scope="module")
def place() -> str:
    """A database of PostgreSQL."""
    return postgres_place(shared_cluster().url)


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(place: str, name: str) -> None:
    asked, sentence = REFUSED[name]
    with ExitStack() as stack, pytest.raises(once.OnceError, match=re.escape(sentence)):
        asked(stack, place)
    assert found_at(place, "SELECT * FROM semel_once") == []


def test_an_error_of_a_driver_is_not_its_own_cause(place: str) -> None:
    with ExitStack() as stack:
        connection = opened(stack, place)
        connection.close()
        with pytest.raises(Exception, match="closed") as raised:
            block(connection)
    assert raised.value.__cause__ is not raised.value

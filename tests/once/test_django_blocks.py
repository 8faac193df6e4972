"""A block inside of Django's `atomic` that fails: it is undone, and the transaction around it goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import IntegerField, Model
from django.db.transaction import TransactionManagementError

from semel import once
from tests.once.conftest import Built
from tests.once.houses_django import DjangoPostgres, DjangoSqlite, opened


class DjangoCharge(Model):  # type: ignore[misc] # Django has no types
    """A charge with a number that is there once."""

    number = IntegerField(unique=True)

    class Meta:
        """Of no application."""

        app_label = "blocks"
        db_table = "numbered"


def create(connection: Any, number: int) -> None:
    """As a program has it."""
    DjangoCharge.objects.using(connection.alias).create(number=number)


def swallowed(connection: Any) -> None:
    """A block that goes on after an error, which has broken its transaction."""
    with suppress(IntegrityError):
        create(connection, 1)


def inner(connection: Any) -> None:
    """A nested block without a savepoint, which leaves the rollback to the one around it."""
    with transaction.atomic(using=connection.alias, savepoint=False):
        create(connection, 1)


BODIES: dict[str, tuple[Callable[[Any], None], type[Exception]]] = {
    "failed": (lambda connection: create(connection, 1), IntegrityError),
    "swallowed": (swallowed, TransactionManagementError),
    "nested": (inner, IntegrityError),
}


@pytest.mark.parametrize("kind", ["django", "sqlite-django"])
@pytest.mark.parametrize("fails", BODIES)
def test_a_create_that_fails_in_a_block_undoes_the_block_alone(built: Built, kind: str, fails: str) -> None:
    house, (body, error) = built(kind), BODIES[fails]
    assert isinstance(house, DjangoPostgres | DjangoSqlite)
    with opened(house.facts()) as connection:
        with connection.schema_editor() as editor:
            editor.create_model(DjangoCharge)
        create(connection, 1)

        def work() -> None:
            with once.transaction(connection, "k", scope=None) as attempt:
                create(connection, 7)
                body(connection)
                attempt.result = 1

        with transaction.atomic(using=connection.alias):
            create(connection, 2)
            with pytest.raises(error):
                work()
            create(connection, 3)
        numbers = DjangoCharge.objects.using(connection.alias).values_list("number", flat=True)
        assert sorted(numbers) == [1, 2, 3]
    assert house.receipts() == 0

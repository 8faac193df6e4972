"""A view of Django takes effect once for each key, with its answer in its own transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import RequestFactory

from semel import once
from semel.once.django import View, once_per_key
from tests.once.houses import CHARGE_ONE, CHARGES, COUNT
from tests.once.houses_django import DjangoSqlite

ALIAS = "shop"
assert not DjangoSqlite.can_end_inside, "its module configures Django"


@pytest.fixture
def charges(tmp_path: Path) -> Iterator[Callable[[], int]]:
    """A database with charges; how many there are."""
    facts = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "app.db")}
    connections.settings[ALIAS] = connections.configure_settings({"default": {}, ALIAS: facts})[ALIAS]
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(CHARGES)
        for statement in once.ddl("sqlite").split(";")[:-1]:
            cursor.execute(statement)

    def count() -> int:
        with connections[ALIAS].cursor() as cursor:
            return int(cursor.execute(COUNT).fetchone()[0])

    yield count
    connections[ALIAS].close()
    del connections[ALIAS]


def charge_one() -> None:
    """The effect of a view."""
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(CHARGE_ONE)


def posted(view: View[[]], key: str | None = '"k"', body: Any = None, **headers: str) -> HttpResponse:
    """The answer to a request."""
    given = headers if key is None else {"Idempotency-Key": key, **headers}
    request = RequestFactory().post("/charges", json.dumps(body), content_type="application/json", headers=given)
    return view(request)


@once_per_key(scope=lambda request: request.headers.get("X-User", "u"), using=ALIAS)
def charge(request: HttpRequest) -> HttpResponse:
    """Charge, and say where."""
    charge_one()
    return JsonResponse(
        {"charged": json.loads(request.body)}, status=201, headers={"Location": "/charges/1", "X-Other": "1"}
    )


def test_a_retry_gets_the_same_answer_and_charges_nothing(charges: Callable[[], int]) -> None:
    first, again = posted(charge, body=5), posted(charge, body=5)
    assert (first.status_code, first.content) == (again.status_code, again.content) == (201, b'{"charged": 5}')
    assert again["Location"] == "/charges/1"
    assert again["Content-Type"] == "application/json"
    assert again["Idempotency-Replayed"] == "true"
    assert "X-Other" not in again
    assert not first.has_header("Idempotency-Replayed")
    assert charges() == 1


def test_other_callers_and_other_keys_charge(charges: Callable[[], int]) -> None:
    posted(charge, body=5)
    posted(charge, body=5, **{"X-User": "other"})
    posted(charge, "other", body=5)
    assert charges() == 3


@pytest.mark.parametrize(
    ("key", "body", "status", "code"),
    [
        ('"k"', 6, 422, "key_mismatch"),
        (None, 5, 400, "key_required"),
        ("k" * 300, 5, 400, "invalid_key"),
        ("", 5, 400, "invalid_key"),
    ],
)
def test_what_is_refused_runs_nothing(
    charges: Callable[[], int], key: str | None, body: int, status: int, code: str
) -> None:
    posted(charge, body=5)
    answer = posted(charge, key, body)
    assert (answer.status_code, json.loads(answer.content)["code"]) == (status, code)
    assert charges() == 1


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_an_answer_that_may_differ_later_undoes_what_was_written(charges: Callable[[], int], status: int) -> None:
    statuses = iter([status, 200])

    @once_per_key(scope=None, using=ALIAS)
    def view(request: HttpRequest) -> HttpResponse:
        charge_one()
        return HttpResponse(status=next(statuses))

    assert posted(view).status_code == status
    assert charges() == 0
    assert posted(view).status_code == 200
    assert charges() == 1


def test_an_exception_undoes_what_was_written_and_the_retry_runs(charges: Callable[[], int]) -> None:
    errors: Iterator[Exception | None] = iter([KeyError("card"), None])

    @once_per_key(scope=None, using=ALIAS)
    def view(request: HttpRequest) -> HttpResponse:
        charge_one()
        if (error := next(errors)) is not None:
            raise error
        return HttpResponse("done")

    with pytest.raises(KeyError):
        posted(view)
    assert charges() == 0
    assert posted(view).content == b"done"
    assert charges() == 1


@pytest.mark.parametrize("made", [lambda: HttpResponse(b"a" * 11), lambda: StreamingHttpResponse([b"a"])])
def test_an_answer_that_cannot_be_stored_undoes_what_was_written(
    charges: Callable[[], int], made: Callable[[], HttpResponse]
) -> None:
    @once_per_key(scope=None, using=ALIAS, max_answer=10)
    def view(request: HttpRequest) -> HttpResponse:
        charge_one()
        return made()

    answer = posted(view)
    assert (answer.status_code, json.loads(answer.content)["code"]) == (500, "answer_not_stored")
    assert charges() == 0


def test_without_a_key_a_view_runs_where_that_is_allowed(charges: Callable[[], int]) -> None:
    @once_per_key(scope=None, using=ALIAS, is_required=False)
    def view(request: HttpRequest) -> HttpResponse:
        charge_one()
        return HttpResponse("done")

    for _ in range(2):
        assert posted(view, None).content == b"done"
    assert charges() == 2


def test_a_missing_table_is_told_and_nothing_runs(charges: Callable[[], int]) -> None:
    @once_per_key(scope=None, using=ALIAS, table="not_there")
    def view(request: HttpRequest) -> HttpResponse:
        charge_one()
        return HttpResponse("done")

    answer = posted(view)
    assert answer.status_code == 503
    assert "semel once init" in json.loads(answer.content)["detail"]
    assert charges() == 0


def test_a_coroutine_is_refused_when_it_is_decorated() -> None:
    async def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    with pytest.raises(once.InvalidKey, match="needs a synchronous view"):
        once_per_key(scope=None)(view)

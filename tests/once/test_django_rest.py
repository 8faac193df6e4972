"""`once_per_key` above views of Django REST framework with `ATOMIC_REQUESTS`, through Django's own handler."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import Client, override_settings
from django.urls import path
from django.utils.connection import ConnectionProxy
from django.utils.decorators import method_decorator
from rest_framework.decorators import api_view
from rest_framework.exceptions import NotFound, PermissionDenied, ValidationError
from rest_framework.response import Response
from rest_framework.views import APIView

from semel import once
from semel.once import InvalidKey
from semel.once.django import once_per_key
from semel.once.transaction import driver_of
from tests.once.houses import CHARGE_ONE, CHARGES, COUNT
from tests.once.houses_django import DjangoSqlite

ALIAS = "rest"
assert not DjangoSqlite.can_end_inside, "its module configures Django"
guarded = once_per_key(scope=None, using=ALIAS)
ERRORS = {"400": ValidationError({"amount": "too small"}), "403": PermissionDenied(), "404": NotFound()}


def charge() -> None:
    """The effect of a view."""
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(CHARGE_ONE)


def answered(request: Any) -> Response:
    """Charge, then refuse if the request wants it."""
    charge()
    if error := ERRORS.get(request.headers.get("X-Fail", "")):
        raise error
    return Response({"charged": request.data["amount"]}, status=201)


@method_decorator(guarded, name="dispatch")
class ChargeView(APIView):  # type: ignore[misc] # it has no types
    """Decorated as the page says."""

    def post(self, request: Any) -> Response:
        """Charge."""
        return answered(request)


@guarded
@api_view(["POST"])  # type: ignore[untyped-decorator]
def charge_view(request: Any) -> Response:
    """Decorated outermost."""
    return answered(request)


class WrongMethod(APIView):  # type: ignore[misc] # it has no types
    """A decorator for views on a method."""

    @guarded
    def post(self, request: Any) -> Response:
        """Charge."""
        return answered(request)


class WrongRequest(APIView):  # type: ignore[misc] # it has no types
    """A decorator for views on a method that gets a request of the framework."""

    @method_decorator(guarded)  # type: ignore[untyped-decorator]
    def post(self, request: Any) -> Response:
        """Charge."""
        return answered(request)


@api_view(["POST"])  # type: ignore[untyped-decorator]
@guarded
def wrong_order(request: Any) -> Response:
    """Decorated inside."""
    return answered(request)


urlpatterns = [
    path("class", ChargeView.as_view()),
    path("function", charge_view),
    path("wrong/method", WrongMethod.as_view()),
    path("wrong/request", WrongRequest.as_view()),
    path("wrong/order", wrong_order),
]
REST: dict[str, Any] = {
    "UNAUTHENTICATED_USER": None,
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
}


@pytest.fixture
def charges(tmp_path: Path) -> Iterator[Callable[[], int]]:
    """A database whose requests are transactions; how many charges it has."""
    facts: dict[str, Any] = {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(tmp_path / "app.db"),
        "ATOMIC_REQUESTS": True,
    }
    with closing(sqlite3.connect(facts["NAME"])) as connection:
        connection.executescript(f"{CHARGES};{once.ddl('sqlite')}")
    connections.settings[ALIAS] = connections.configure_settings({"default": {}, ALIAS: facts})[ALIAS]

    def count() -> int:
        with closing(sqlite3.connect(facts["NAME"])) as looking:
            return int(looking.execute(COUNT).fetchone()[0])

    with override_settings(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], REST_FRAMEWORK=REST):
        yield count
    connections[ALIAS].close()
    del connections[ALIAS]


def post(where: str, **headers: str) -> Any:
    """POST through the handler of Django."""
    named = {"Idempotency-Key": "k"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return Client().post(f"/{where}", {"amount": 5}, content_type="application/json", headers=named)


@pytest.mark.parametrize("where", ["class", "function"])
@pytest.mark.parametrize("status", ERRORS)
def test_a_refusal_stays_what_it_is_and_leaves_nothing(charges: Callable[[], int], where: str, status: str) -> None:
    for _ in range(2):
        answer = post(where, X_Fail=status)
        assert (answer.status_code, charges()) == (int(status), 0)
        assert "Idempotency-Replayed" not in answer
    answers = [post(where) for _ in range(2)]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(201, {"charged": 5})] * 2
    assert answers[1]["Idempotency-Replayed"] == "true"
    assert charges() == 1


@pytest.mark.parametrize("where", ["wrong/method", "wrong/request", "wrong/order"])
def test_what_is_no_view_is_told_what_to_decorate(charges: Callable[[], int], where: str) -> None:
    with pytest.raises(InvalidKey, match=r"got a \w+ and not an HttpRequest: decorate the view itself, with "):
        post(where)
    assert charges() == 0


def test_whether_a_transaction_is_open_is_known_in_another_thread(charges: Callable[[], int]) -> None:
    shared = ConnectionProxy(connections, ALIAS)  # as `django.db.connection` is for the default database
    with transaction.atomic(using=ALIAS):
        driver, found = driver_of(shared), []
        thread = threading.Thread(target=lambda: found.append(driver.is_open()))
        thread.start()
        thread.join()
        assert (driver.is_open(), found) == (True, [True])
    assert not driver.is_open()

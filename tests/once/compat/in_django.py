"""Rows of the table in Django: `python -m tests.once.compat.in_django URL FILE` plays them, and says its version.

It runs in the environment of the tests and in one with another Django, so it needs Django, its REST framework, psycopg
and `semel.once` alone. Views are called through Django's own WSGI handler.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit
from wsgiref.util import setup_testing_defaults

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path

from semel import once
from semel.once import Once
from semel.once.django import once_per_key
from tests.once.compat.places import BUSY_SECONDS, count
from tests.once.compat.run import Row, Work, WorkError, charge, new_result, patiently, play_row


def facts(place: str, **options: Any) -> dict[str, Any]:
    """The settings of a database."""
    if not place.startswith("postgresql"):
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": place, "OPTIONS": {"timeout": BUSY_SECONDS}, **options}
    parts = urlsplit(place)
    at = {"NAME": parts.path[1:], "USER": parts.username, "HOST": parts.hostname, "PORT": str(parts.port)}
    return {"ENGINE": "django.db.backends.postgresql", **at, **options}


PLACES = {"PostgreSQL": sys.argv[1], "SQLite": sys.argv[2]} if __name__ == "__main__" else {}
DATABASES = {name: facts(place) for name, place in PLACES.items()}
DATABASES |= {f"{name} atomic": facts(place, ATOMIC_REQUESTS=True) for name, place in PLACES.items()}
settings.configure(
    DATABASES={"default": {}} | DATABASES,
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    INSTALLED_APPS=["rest_framework"],
    REST_FRAMEWORK={"DEFAULT_AUTHENTICATION_CLASSES": [], "UNAUTHENTICATED_USER": None},
    LOGGING_CONFIG=None,
)
django.setup()

from django.utils.decorators import method_decorator  # noqa: E402 - the REST framework needs the settings
from rest_framework.exceptions import ValidationError  # noqa: E402
from rest_framework.response import Response  # noqa: E402
from rest_framework.views import APIView  # noqa: E402


def execute(alias: str, sql: str) -> None:
    """A statement."""
    with connections[alias].cursor() as cursor:
        cursor.execute(sql)


def work_of(request: Any) -> tuple[str, Work]:
    """The key of a request, and what it asks for."""
    return request.headers["Idempotency-Key"], Work(request.headers["X-Work"])


def plain_view(alias: str) -> Callable[[HttpRequest], HttpResponse]:
    """A view of Django behind its decorator."""

    @once_per_key(scope=None, using=alias)
    def view(request: HttpRequest) -> HttpResponse:
        key, work = work_of(request)
        execute(alias, charge(key, work))
        if work is Work.RAISE:
            raise WorkError
        return HttpResponse(new_result(key), status=201)

    return view


def rest_view(alias: str) -> Any:
    """A view of the REST framework, which rolls a transaction back itself when it refuses a request."""

    @method_decorator(once_per_key(scope=None, using=alias), name="dispatch")
    class View(APIView):  # type: ignore[misc] # it has no types
        def post(self, request: Any) -> Response:
            key, work = work_of(request)
            execute(alias, charge(key, work))
            if work is Work.RAISE:
                raise ValidationError("refused")
            return Response(new_result(key), status=201)

    return View.as_view()


def joined_view(alias: str) -> Callable[[HttpRequest], HttpResponse]:
    """A view behind `once.WsgiMiddleware`, with a block in the transaction of its request."""

    def view(request: HttpRequest) -> HttpResponse:
        key, work = work_of(request)
        with once.transaction(connections[alias]) as attempt:
            if attempt.fresh:
                execute(alias, charge(key, work))
                attempt.result = new_result(key)
                if work is Work.RAISE:
                    raise WorkError
        return HttpResponse(attempt.result, status=201)

    return view


def exempt(view: Any) -> Any:
    view.csrf_exempt = True
    return view


class DecoratedMethod(APIView):  # type: ignore[misc] # it has no types
    """A mistake: the decorator is above a method, which gets its object first."""

    @once_per_key(scope=None)
    def post(self: Any, request: Any) -> Any:
        """It never runs."""


DOORS = {"view": plain_view, "DRF view": rest_view, "joined view": joined_view}
urlpatterns = [path(f"{door}/{alias}", exempt(make(alias))) for door, make in DOORS.items() for alias in DATABASES]


class BlockRow(Row):
    """A block in `transaction.atomic`."""

    def __init__(self, place: str, alias: str) -> None:
        self._place, self._alias = place, alias

    def call(self, key: str, work: Work = Work.CHARGE) -> str:
        """In a thread's own connection, which is closed behind it as behind a request."""
        try:
            return patiently(lambda: self._once(key, work))
        finally:
            connections.close_all()

    def _once(self, key: str, work: Work) -> str:
        alias = self._alias
        with (
            transaction.atomic(using=alias),
            once.transaction(connections[alias], key, scope="shop") as attempt,
        ):
            if attempt.fresh:
                execute(alias, charge(key, work))
                attempt.result = new_result(key)
                if work is Work.RAISE:
                    raise WorkError
        result: str = attempt.result
        return result

    def effects(self, key: str) -> int:
        """How many charges there are."""
        return count(self._place, "charges", key)

    def reconnect(self) -> None:
        """Each call has done so."""


class ViewRow(BlockRow):
    """A view, called through a WSGI application."""

    def __init__(self, place: str, alias: str, door: str, app: Any) -> None:
        super().__init__(place, alias)
        self._path, self._app = f"/{door}/{alias}", app

    def _once(self, key: str, work: Work) -> str:
        status, body, _ = asked(self._app, self._path, key, work)
        if status != 201:
            raise WorkError(status, body)
        return body

    def status(self, key: str, work: Work) -> int:
        """The status of one answer."""
        return asked(self._app, self._path, key, work)[0]

    def is_stored(self, key: str) -> bool:
        """Whether the middleware replays the answer: else the view would run, and its block replay."""
        return asked(self._app, self._path, key, Work.CHARGE)[2]


def asked(app: Any, path: str, key: str, work: Work) -> tuple[int, str, bool]:
    """The answer to a POST, and whether it is a replay; a request whose key is in flight is repeated."""
    while True:
        environ: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "CONTENT_LENGTH": "0"}
        environ |= {"HTTP_IDEMPOTENCY_KEY": key, "HTTP_X_WORK": str(work), "wsgi.input": io.BytesIO()}
        setup_testing_defaults(environ)
        lines: list[tuple[str, dict[str, str]]] = []
        pieces = app(environ, lambda line, headers, fault=None, lines=lines: lines.append((line, dict(headers))))
        try:
            body = b"".join(pieces).decode()
        finally:
            getattr(pieces, "close", lambda: None)()
        [(line, headers)] = lines
        if not line.startswith("409") or json.loads(body)["code"] != "in_flight":
            return int(line[:3]), body, "idempotency-replayed" in {name.lower() for name in headers}


def main() -> None:
    """Play every row, and look at what has to be refused."""
    app = get_wsgi_application()
    for name, place in PLACES.items():
        play_row(BlockRow(place, name), f"Django, {name}")
        store = Once(place if place.startswith("postgresql") else f"{place}.once")
        joined = once.WsgiMiddleware(app, store, scope=None)
        for alias in (name, f"{name} atomic"):
            play_row(ViewRow(place, alias, "view", app), f"view, {alias}")
        rest = ViewRow(place, f"{name} atomic", "DRF view", app)
        play_row(rest, f"DRF view, {name}")
        assert rest.status(f"DRF refused, {name}", Work.RAISE) == 400
        inside = ViewRow(place, f"{name} atomic", "joined view", joined)
        play_row(inside, f"joined view, {name}")
        assert inside.is_stored(f"joined view, {name}-one")
        store.close()
    sys.stdout.write(f"{django.get_version()}\n{refusal_of_a_method()}")


def refusal_of_a_method() -> str:
    """The sentence for a decorator above a method."""
    try:
        DecoratedMethod().post(None)
    except once.InvalidKey as error:
        return str(error)
    return "it ran"


if __name__ == "__main__":
    sys.modules["tests.once.compat.in_django"] = sys.modules["__main__"]
    main()

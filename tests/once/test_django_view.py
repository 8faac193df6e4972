"""A view of Django takes effect once for each key, with its answer in its own transaction."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.middleware.csrf import get_token
from django.test import Client, RequestFactory, override_settings
from django.test.client import MULTIPART_CONTENT
from django.urls import path

from semel import once
from semel.once.django import View, once_per_key
from tests.once.houses import CHARGE_ONE, CHARGES, COUNT
from tests.once.houses_django import DjangoSqlite

ALIAS = "shop"
Upload = Callable[..., HttpResponse]
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
    assert again["X-Other"] == "1"
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


def test_a_comparison_of_ones_own_leaves_path_and_method_in_the_question(charges: Callable[[], int]) -> None:
    @once_per_key(scope=None, using=ALIAS, compare=lambda request: len(request.body))
    def view(request: HttpRequest) -> HttpResponse:
        charge_one()
        return HttpResponse(request.path)

    def told(method: str, path: str, body: bytes) -> int:
        made = RequestFactory().generic(method, path, body, "text/plain", headers={"Idempotency-Key": "k"})
        return int(view(made).status_code)

    assert [told("POST", "/charges", body) for body in (b"a", b"b", b"ab")] == [200, 200, 422]
    assert [told("POST", "/refunds", b"a"), told("PUT", "/charges", b"a")] == [422, 422]
    assert charges() == 1


@pytest.fixture
def upload(charges: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> Upload:
    """A view that takes a file, behind the middleware against forged requests."""

    @once_per_key(scope=None, using=ALIAS)
    def view(request: HttpRequest) -> HttpResponse:
        charge_one()
        return JsonResponse({"bytes": sum(len(one.read()) for one in request.FILES.values()), **request.POST.dict()})

    monkeypatch.setattr(sys.modules[__name__], "urlpatterns", [path("charges", view)], raising=False)

    def ask(fields: Any, token: str = "a" * 32, form: str = MULTIPART_CONTENT) -> HttpResponse:
        with override_settings(ROOT_URLCONF=__name__, MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"]):
            client = Client(enforce_csrf_checks=True)
            client.cookies["csrftoken"] = "a" * 32
            headers = {"Idempotency-Key": "k", "X-CSRFToken": "a" * 32}
            if form == MULTIPART_CONTENT:
                found: Any = client.post("/charges", fields | {"csrfmiddlewaretoken": token}, headers=headers)
            else:
                text = urlencode(fields | {"csrfmiddlewaretoken": token})
                found = client.post("/charges", text, content_type=form, headers=headers)
            return found

    return ask


def fresh_token() -> str:
    """What a page has in its form: the secret of the cookie, masked anew."""
    request = RequestFactory().get("/")
    request.META["CSRF_COOKIE"] = "a" * 32
    return str(get_token(request))


def file(content: bytes = b"a" * 10, name: str = "order.pdf") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content, content_type="application/pdf")


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_an_upload_takes_effect_once_behind_the_check_of_its_token(
    upload: Upload, charges: Callable[[], int], size: int
) -> None:
    """The check reads the form before the view, and a retry has another boundary."""
    first, again = (upload({"order": "7", "file": file(b"a" * size)}) for _ in range(2))
    assert (first.status_code, json.loads(first.content)["bytes"]) == (200, size)
    assert (again.status_code, again.content, again["Idempotency-Replayed"]) == (200, first.content, "true")
    assert charges() == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"order": "8", "file": file()},
        {"order": "7", "file": file(b"b" * 10)},
        {"order": "7", "file": file(name="other.pdf")},
        {"order": ["7", "7"], "file": file()},
        {"order": "7", "attachment": file()},
        {"order": "7"},
    ],
    ids=range(6),
)
def test_another_upload_with_the_key_is_refused(upload: Upload, charges: Callable[[], int], fields: Any) -> None:
    assert upload({"order": "7", "file": file()}).status_code == 200
    assert upload(fields).status_code == 422
    assert charges() == 1


@pytest.mark.parametrize("form", [MULTIPART_CONTENT, "application/x-www-form-urlencoded"])
def test_the_token_of_a_form_is_not_compared(upload: Upload, charges: Callable[[], int], form: str) -> None:
    """A page that is loaded again has another one."""
    answers = [upload({"order": "7"}, token, form) for token in (fresh_token(), fresh_token())]
    assert [one.status_code for one in answers] == [200, 200]
    assert charges() == 1


def test_a_body_that_was_read_before_is_a_mistake_of_the_program(charges: Callable[[], int]) -> None:
    request = RequestFactory().post("/charges", "{}", content_type="application/json", headers={"Idempotency-Key": "k"})
    request.read()
    with pytest.raises(once.InvalidKey, match="outermost decorator"):
        charge(request)
    assert charges() == 0


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize("form", [MULTIPART_CONTENT, "application/x-www-form-urlencoded"])
def test_a_form_of_another_method_is_compared_too(charges: Callable[[], int], method: str, form: str) -> None:
    """Django parses forms of POST alone."""
    answers = [
        charge_any(RequestFactory().generic(method, "/charges", body, form, headers={"Idempotency-Key": "k"}))
        for body in (b"amount=5", b"amount=5", b"amount=6")
    ]
    assert [one.status_code for one in answers] == [200, 200, 422]
    assert charges() == 1


def test_a_view_may_read_the_body_of_a_form(upload: Upload, charges: Callable[[], int]) -> None:
    request = RequestFactory().post("/charges", {"order": "7", "file": file()}, headers={"Idempotency-Key": "k"})
    assert int(charge_any(request).content) > 100


@once_per_key(scope=None, using=ALIAS)
def charge_any(request: HttpRequest) -> HttpResponse:
    """Charge, and tell the length of the body."""
    charge_one()
    return HttpResponse(str(len(request.body)))


def test_values_that_cannot_be_compared_run_nothing(charges: Callable[[], int]) -> None:
    @once_per_key(scope=None, using=ALIAS, compare=lambda request: json.loads(request.body))
    def view(request: HttpRequest) -> HttpResponse:
        raise AssertionError("it is not run")

    refused = posted(view, body=float("nan"))
    assert (refused.status_code, json.loads(refused.content)["code"]) == (400, "invalid_body")
    assert charges() == 0

"""Django: a view that takes effect once for each `Idempotency-Key`.

    @once_per_key(scope=lambda request: request.user.pk)
    def charge(request): ...

The view runs in `transaction.atomic`, and its answer is stored in the same transaction as its writes: a crash leaves
both or neither, so no outcome is unknown. An answer that is not remembered (5xx, and those 4xx that a retry may change)
rolls the view's writes back, as an exception does.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.http import HttpRequest, HttpResponse, RawPostDataException

from semel.kernel.keys import InvalidKeyError, parse_idempotency_key
from semel.once.compared import content_fingerprint
from semel.once.errors import InvalidKey, OnceError
from semel.once.exchange import PASSING, OnceAnswer, packed, problem, refusal, request_fingerprint, unpacked
from semel.once.functions import check_choice
from semel.once.http_rules import RefusedRequest, checked_compare, checked_scope, compared_fingerprint, scope_of
from semel.once.identity import fingerprint, is_async
from semel.once.table import TABLE, checked
from semel.once.transaction import transaction as once_transaction
from semel.once.units import Duration, Size, byte_count, lasting, seconds

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


_FORGERY_FIELD = "csrfmiddlewaretoken"


class _UndoneError(Exception):
    """Rolls the transaction back, with an answer that is not remembered."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__(response.status_code)
        self.response = response


def once_per_key(
    *,
    scope: Callable[[HttpRequest], object] | None,
    is_required: bool = True,
    keep: Duration = "24h",
    wait: Duration | None = "10s",
    compare: Callable[[HttpRequest], Any] | None = None,
    max_answer: Size = "1MiB",
    using: str = DEFAULT_DB_ALIAS,
    table: str = TABLE,
) -> Callable[[View[P]], View[P]]:
    """Run a view once for each key in a scope.

    `scope` is a function from the request to the tenant; None is one scope for all callers. A request without a key
    gets 400, or runs without a receipt if `is_required=False`. `compare` returns the values that must be equal in two
    requests with one key, by default what they ask.
    """
    limit, whose = byte_count(max_answer), checked_scope(scope)
    check_choice("is_required", is_required, (False, True))
    _check_block(table, keep, wait)
    checked_compare(compare)

    def decorate(view: View[P]) -> View[P]:
        if is_async(view):
            raise InvalidKey("once_per_key needs a synchronous view: Django's transactions are synchronous.")

        @functools.wraps(view)
        def once_view(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            _refuse_other(request)
            try:
                key = _key_of(request, is_required=is_required)
                if key is None:
                    return view(request, *args, **kwargs)
                who = None if whose is None else scope_of(whose, request)
                print_ = _fingerprint(request, compare)
                with transaction.atomic(using=using):
                    block = once_transaction(
                        connections[using], key, print_, scope=who, keep=keep, wait=wait, table=table
                    )
                    with block as attempt:
                        if not attempt.fresh:
                            return _response(unpacked(attempt.result))
                        response = view(request, *args, **kwargs)
                        if transaction.get_rollback(using):  # the view, or its framework, has refused the request
                            raise _UndoneError(response)
                        attempt.result = packed(_answer(response, limit))
                        return response
            except _UndoneError as undone:
                return undone.response
            except RefusedRequest as refused:
                return _response(refused.answer)
            except OnceError as error:
                return _refused(error)

        return once_view

    return decorate


def _refused(error: OnceError) -> HttpResponse:
    """The answer to an error of this package. Raises what is a mistake of the program, and not of the client."""
    if isinstance(error, InvalidKey):
        raise error
    return _response(refusal(error))


def _check_block(table: str, keep: Duration, wait: Duration | None) -> None:
    """Refuse options of the block where they are given, and not at each request."""
    checked(table)
    lasting("keep", keep)
    if wait is not None:
        seconds(wait)


def _refuse_other(request: object) -> None:
    """Refuse what is no request of Django: a method of a class gets its object first, a REST framework its own."""
    if not isinstance(request, HttpRequest):
        raise InvalidKey(
            f"once_per_key got a {type(request).__qualname__} and not an HttpRequest: decorate the view itself, with "
            '@method_decorator(once_per_key(...), name="dispatch") above a class, or outermost above a function.'
        )


def _key_of(request: HttpRequest, *, is_required: bool) -> str | None:
    value = request.headers.get("Idempotency-Key")
    try:
        key = parse_idempotency_key([] if value is None else [value.encode("latin-1", "replace")])
    except InvalidKeyError as error:
        raise RefusedRequest(problem(400, "invalid_key", str(error))) from error
    if key is None and is_required:
        raise RefusedRequest(problem(400, "key_required", "Send an Idempotency-Key with this request."))
    return None if key is None else key.decode("ascii")


def _fingerprint(request: HttpRequest, compare: Callable[[HttpRequest], Any] | None) -> bytes:
    path = request.path.encode("utf-8", "surrogateescape")
    if compare is not None:
        return request_fingerprint(request.method or "", path, b"", b"", compared_fingerprint(compare(request)))
    query, kind = (request.META.get(name, "").encode("latin-1", "replace") for name in ("QUERY_STRING", "CONTENT_TYPE"))
    if request.method == "POST" and _is_form(request):
        return request_fingerprint("POST", path, query, b"form", fingerprint(_parts(request)))
    try:
        body = request.body
    except RawPostDataException:
        raise InvalidKey("The body was read before once_per_key: make it the outermost decorator.") from None
    return content_fingerprint(request.method or "", path, query, kind, body)


def _is_form(request: HttpRequest) -> bool:
    """Whether Django parses the body, as its check of forged requests has perhaps done before.

    A body of the size that Django keeps whole is read first, so that the view may read it too.
    """
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if not request._read_started and (most is None or int(request.META.get("CONTENT_LENGTH") or 0) <= most):
        _ = request.body
    if request.content_type == "multipart/form-data":
        return True
    return request.content_type == "application/x-www-form-urlencoded" and _FORGERY_FIELD in request.POST


def _parts(request: HttpRequest) -> list[Any]:
    """What a form asks: its fields, and its files by their digests; not its token, which each page has anew."""
    files = [[name, [_file(one) for one in request.FILES.getlist(name)]] for name in request.FILES]
    return [[[name, request.POST.getlist(name)] for name in request.POST if name != _FORGERY_FIELD], files]


def _file(file: UploadedFile) -> list[Any]:
    digest = hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    file.seek(0)
    return [file.name, file.content_type, file.size, digest.hexdigest()]


def _answer(response: HttpResponse, limit: int) -> OnceAnswer:
    """The answer to store. One that is not remembered, or cannot be stored, rolls the transaction back."""
    if response.status_code >= 500 or response.status_code in PASSING:
        raise _UndoneError(response)
    render = getattr(response, "render", None)
    if callable(render):
        render()
    if response.streaming or len(response.content) > limit:
        detail = (
            f"The answer of this view cannot be stored: it streams, or has more than {limit} bytes. Nothing was done."
        )
        raise _UndoneError(_response(problem(500, "answer_not_stored", detail)))
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    return OnceAnswer(response.status_code, headers, response.content)


def _response(answer: OnceAnswer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status)
    del response.headers["Content-Type"]  # Django's own, which the first answer need not have had
    for name, value in answer.headers:
        if name != b"content-length":
            response[name.decode("latin-1")] = value.decode("latin-1")
    return response

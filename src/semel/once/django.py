"""Django: a view that takes effect once for each `Idempotency-Key`.

    @once_per_key(scope=lambda request: request.user.pk)
    def charge(request): ...

The view runs in `transaction.atomic`, and its answer is stored in the same transaction as its writes: a crash leaves
both or neither, so no outcome is unknown. An answer that is not remembered (5xx, and those 4xx that a retry may change)
rolls the view's writes back, as an exception does.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.http import HttpRequest, HttpResponse, RawPostDataException

from semel.kernel.keys import InvalidKeyError, parse_idempotency_key
from semel.once.errors import InvalidKey, OnceError
from semel.once.exchange import OnceAnswer, is_remembered, packed, problem, refusal, request_fingerprint, unpacked
from semel.once.table import TABLE
from semel.once.transaction import transaction as once_transaction
from semel.once.units import Duration, Size, byte_count

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


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
    headers: tuple[str, ...] = ("location", "etag"),
    max_answer: Size = "1MiB",
    using: str = DEFAULT_DB_ALIAS,
    table: str = TABLE,
) -> Callable[[View[P]], View[P]]:
    """Run a view once for each key in a scope.

    `scope` is a function from the request to the tenant; None is one scope for all callers. A request without a key
    gets 400, or runs without a receipt if `is_required=False`.
    """
    limit = byte_count(max_answer)
    kept = frozenset(name.lower().encode() for name in headers)

    def decorate(view: View[P]) -> View[P]:
        if inspect.iscoroutinefunction(view):
            raise InvalidKey("once_per_key needs a synchronous view: Django's transactions are synchronous.")

        @functools.wraps(view)
        def once_view(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            key = _key_of(request)
            if isinstance(key, OnceAnswer):
                return _response(key)
            if key is None:
                return _response(_REQUIRED) if is_required else view(request, *args, **kwargs)
            who = None if scope is None else scope(request)
            try:
                with transaction.atomic(using=using):
                    print_ = _fingerprint(request)
                    block = once_transaction(
                        connections[using], key, print_, scope=who, keep=keep, wait=wait, table=table
                    )
                    with block as attempt:
                        if not attempt.fresh:
                            return _response(unpacked(attempt.result))
                        response = view(request, *args, **kwargs)
                        attempt.result = packed(_answer(response, limit), kept)
                        return response
            except _UndoneError as undone:
                return undone.response
            except OnceError as error:
                return _response(refusal(error))

        return once_view

    return decorate


_REQUIRED = problem(400, "key_required", "Send an Idempotency-Key with this request.")


def _key_of(request: HttpRequest) -> str | OnceAnswer | None:
    value = request.headers.get("Idempotency-Key")
    try:
        key = parse_idempotency_key([] if value is None else [value.encode("latin-1", "replace")])
    except InvalidKeyError as error:
        return problem(400, "invalid_key", str(error))
    return None if key is None else key.decode("ascii")


def _fingerprint(request: HttpRequest) -> bytes:
    try:
        body = request.body
    except RawPostDataException:
        raise InvalidKey("The body was read before once_per_key: make it the outermost decorator.") from None
    path, query = request.path.encode("utf-8", "surrogateescape"), request.META.get("QUERY_STRING", "").encode()
    return request_fingerprint(request.method or "", path, query, (request.content_type or "").encode(), body)


def _answer(response: HttpResponse, limit: int) -> OnceAnswer:
    """The answer to store. One that is not remembered, or cannot be stored, rolls the transaction back."""
    if not is_remembered(response.status_code):
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
    for name, value in answer.headers:
        if name != b"content-length":
            response[name.decode("latin-1")] = value.decode("latin-1")
    return response

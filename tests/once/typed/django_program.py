"""A view of Django and a lambda, as a user writes them: checked by mypy, strict, and by Pyright in its usual mode."""

# pyright: basic
from __future__ import annotations

from typing import assert_type

from django.http import HttpRequest, HttpResponse

from semel import Once
from semel.once.django import once_per_key


@once_per_key(scope=lambda request: request.path, keep="24h")
def view(request: HttpRequest, number: int) -> HttpResponse:
    """It keeps its arguments."""
    return HttpResponse(f"{request.path} {number}".encode())


answer: HttpResponse = view(HttpRequest(), 7)


@Once.memory().once(key=lambda number: number)
def doubled(number: int) -> int:
    """The key by a lambda."""
    return 2 * number


assert_type(doubled(7), int)

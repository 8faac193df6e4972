"""Routes of the proxy: which requests take effect once, and the policy for them after a crash.

    POST /charges              the route's policy is that of --on-crash
    POST /charges/* retry      every path below /charges/, run again after a crash

The first route that matches counts. A path is compared after percent-decoding, and is not normalised otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

OnCrash = Literal["refuse", "retry"]
POLICIES: tuple[OnCrash, ...] = get_args(OnCrash)
METHODS = ("POST", "PUT", "PATCH", "DELETE")
"""Methods that change something; the others may be repeated as they are."""
BELOW = "/*"


class RouteError(ValueError):
    """The text is no route; the message says what to write."""


class Route(NamedTuple):
    """Requests that take effect once."""

    method: str
    path: str
    """With a slash at its end when it includes what is below it."""
    is_below: bool
    on_crash: OnCrash

    def matches(self, method: str, path: str) -> bool:
        """Whether a request is one of this route."""
        if method != self.method:
            return False
        return path.startswith(self.path) if self.is_below else path == self.path


def route_of(text: str, default: OnCrash) -> Route:
    """The route of a text such as `POST /charges refuse`; raises `RouteError`."""
    words = text.split()
    if not 2 <= len(words) <= 3:
        raise RouteError(f"{text!r} is no route: write a method, a path and perhaps a policy, as in 'POST /charges'.")
    method, path = words[0].upper(), words[1]
    if method not in METHODS:
        raise RouteError(f"The method of a route is one of {', '.join(METHODS)}: {words[0]!r} is not.")
    is_below = path.endswith(BELOW)
    plain = path.removesuffix("*") if is_below else path
    if not plain.startswith("/") or any(sign in plain for sign in "*?#"):
        raise RouteError(f"{path!r} is no path of a route: it begins with '/', and may end with '/*'.")
    return Route(method, plain, is_below, _policy_of(words[2], text) if words[2:] else default)


def _policy_of(word: str, text: str) -> OnCrash:
    for policy in POLICIES:
        if word == policy:
            return policy
    raise RouteError(f"The policy of the route {text!r} is one of {', '.join(POLICIES)}.")


def policy_for(routes: Iterable[Route], method: str, path: str) -> OnCrash | None:
    """The policy of a request; None for one that is passed on as it is."""
    for route in routes:
        if route.matches(method, path):
            return route.on_crash
    return None

"""The settings of the proxy, and its routes: the requests that take effect once.

    POST /charges            with the policy of --on-crash
    POST /charges/* retry      every path below /charges/, run again after a crash

The first route that matches applies. A path is compared after percent-decoding, without other normalisation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args
from urllib.parse import urlsplit

OnCrash = Literal["refuse", "retry"]
POLICIES: tuple[OnCrash, ...] = get_args(OnCrash)
METHODS = ("POST", "PUT", "PATCH", "DELETE")
"""Methods that are not safe: a route may name only these."""
BELOW = "/*"


class RouteError(ValueError):
    """The text is not a route; the message says what to write."""


class ProxyRoute(NamedTuple):
    """Requests that take effect once."""

    method: str
    path: str
    """Ends with a slash if the route includes all paths below it."""
    is_below: bool
    on_crash: OnCrash

    def matches(self, method: str, path: str) -> bool:
        """Whether a request matches this route."""
        if method != self.method:
            return False
        return path.startswith(self.path) if self.is_below else path == self.path


def route_of(text: str, default: OnCrash) -> ProxyRoute:
    """The route of a text such as `POST /charges refuse`; raises `RouteError`."""
    words = text.split()
    if not 2 <= len(words) <= 3:
        raise RouteError(
            f"{text!r} is not a route: write a method, a path and optionally a policy, as in 'POST /charges'."
        )
    method, path = words[0].upper(), words[1]
    if method not in METHODS:
        raise RouteError(f"The method of a route must be one of {', '.join(METHODS)}, not {words[0]!r}.")
    is_below = path.endswith(BELOW)
    plain = path.removesuffix("*") if is_below else path
    if not plain.startswith("/") or any(sign in plain for sign in "*?#"):
        raise RouteError(f"{path!r} is not a path of a route: it must start with '/', and may end with '/*'.")
    return ProxyRoute(method, plain, is_below, _policy_of(words[2], text) if words[2:] else default)


def _policy_of(word: str, text: str) -> OnCrash:
    for policy in POLICIES:
        if word == policy:
            return policy
    raise RouteError(f"The policy of the route {text!r} must be one of {', '.join(POLICIES)}.")


def policy_for(routes: Iterable[ProxyRoute], method: str, path: str) -> OnCrash | None:
    """The policy of a request, or None if it is passed on without a receipt."""
    for route in routes:
        if route.matches(method, path):
            return route.on_crash
    return None


MIB = 1_048_576
KEPT_HEADERS = ("location", "etag", "content-encoding", "content-language")
"""Headers that a replay repeats, besides Content-Type and Content-Length."""


class UpstreamError(ValueError):
    """The text is not the URL of a service."""


@dataclass(frozen=True)
class ProxySettings:
    """The options of `semel proxy`; durations are in seconds, sizes in bytes."""

    upstream: str
    """Scheme, host and port; see `upstream_of`."""
    routes: tuple[ProxyRoute, ...]
    is_key_required: bool = False
    scope_headers: tuple[str, ...] = ("authorization",)
    """Headers whose hashed values separate the keys of callers; if empty, all callers share one scope."""
    keep: float = 86_400.0
    lease: float = 60.0
    wait: float = 10.0
    kept_headers: tuple[str, ...] = KEPT_HEADERS
    max_body: int = MIB
    max_answer: int = MIB
    max_requests: int = 256
    connect_timeout: float = 10.0
    answer_timeout: float = 60.0
    idle_timeout: float = 60.0
    stop_timeout: float = 30.0
    is_forwarded_trusted: bool = False
    is_host_rewritten: bool = False

    @property
    def upstream_host(self) -> str:
        """The Host header of the upstream."""
        return self.upstream.partition("://")[2]


def upstream_of(text: str) -> str:
    """The URL of a service without a trailing slash. Raises `UpstreamError`."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise UpstreamError("The upstream is not a URL: write it as http://127.0.0.1:8000.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UpstreamError("The upstream must be an http:// or https:// URL with a host, as in http://127.0.0.1:8000.")
    if parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise UpstreamError(
            "The upstream must have only a scheme, a host and a port: remove the user, path, query or fragment."
        )
    return f"{parts.scheme}://{parts.netloc}"

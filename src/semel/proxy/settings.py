"""The settings of the proxy, and its routes: the requests that take effect once.

    POST /charges            with the policy of --on-crash
    POST /charges/* retry      every path below /charges/, run again after a crash

The first route that matches applies. A path is compared after percent-decoding, without other normalisation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from semel.once.units import byte_count, seconds

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
MOST_REQUESTS = 65_536


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


def length_of(text: str) -> float:
    """A duration above 0 in seconds. Raises `ValueError`."""
    found = seconds(text)
    if found <= 0:
        raise ValueError(f"{text!r} is too short: write at least '1ms'.")
    return found


PREFIX = "SEMEL_PROXY_"
_NEEDED = ("UPSTREAM", "STORE", "ROUTES")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("write true or false.")
    return text == "true"


def _requests(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_REQUESTS:
        raise ValueError(f"write a number from 1 to {MOST_REQUESTS}.")
    return int(text)


VARIABLES: dict[str, tuple[str, Callable[[str], object]]] = {
    "REQUIRE": ("is_key_required", _flag),
    "SCOPE_HEADERS": ("scope_headers", lambda text: () if text == "none" else _words(text)),
    "KEEP": ("keep", length_of),
    "LEASE": ("lease", length_of),
    "WAIT": ("wait", length_of),
    "MAX_BODY": ("max_body", byte_count),
    "MAX_ANSWER": ("max_answer", byte_count),
    "MAX_REQUESTS": ("max_requests", _requests),
    "CONNECT_TIMEOUT": ("connect_timeout", length_of),
    "TIMEOUT": ("answer_timeout", length_of),
    "IDLE_TIMEOUT": ("idle_timeout", length_of),
    "TRUST_FORWARDED": ("is_forwarded_trusted", _flag),
    "REWRITE_HOST": ("is_host_rewritten", _flag),
}
"""Variables that may be absent, and the setting that each of them is."""


def settings_from(environ: Mapping[str, str]) -> tuple[ProxySettings, str]:
    """The settings of `SEMEL_PROXY_` variables, and the place of the store. Raises `ValueError`."""
    found = {name.removeprefix(PREFIX): text for name, text in environ.items() if name.startswith(PREFIX)}
    for name in _NEEDED:
        if not found.get(name):
            raise ValueError(f"Set {PREFIX}{name}.")
    given: dict[str, Any] = {}
    for name in found.keys() - {*_NEEDED, "ON_CRASH"}:
        if name not in VARIABLES:
            raise ValueError(f"{PREFIX}{name} is not a variable of the proxy.")
        field, parse = VARIABLES[name]
        try:
            given[field] = parse(found[name])
        except ValueError as error:
            raise ValueError(f"{PREFIX}{name} is {found[name]!r}: {error}") from error
    default = _policy_of(found.get("ON_CRASH", "refuse"), f"{PREFIX}ON_CRASH")
    routes = tuple(route_of(text, default) for text in _words(found["ROUTES"]))
    return ProxySettings(upstream_of(found["UPSTREAM"]), routes, **given), found["STORE"]

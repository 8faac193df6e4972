"""Settings of the proxy: every limit has a value."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from semel.proxy.routes import Route

MIB = 1_048_576
KEPT_HEADERS = ("location", "etag", "content-encoding", "content-language")
"""Headers of an answer that a replay has as well, besides Content-Type and Content-Length."""


class UpstreamError(ValueError):
    """The text is no address of a service."""


@dataclass(frozen=True)
class ProxySettings:
    """The options of `semel proxy`; lengths of time are in seconds, and sizes in bytes."""

    upstream: str
    """Scheme, host and port; see `upstream_of`."""
    routes: tuple[Route, ...]
    is_key_required: bool = False
    scope_headers: tuple[str, ...] = ("authorization",)
    """Whose values, hashed, keep the keys of callers apart; none for one scope of all callers."""
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
        """The Host of the upstream."""
        return self.upstream.partition("://")[2]


def upstream_of(text: str) -> str:
    """The address of a service, without a slash at its end; raises `UpstreamError`."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise UpstreamError("The upstream is no URL: write it as http://127.0.0.1:8000.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UpstreamError("The upstream is a URL with http:// or https:// and a host, as in http://127.0.0.1:8000.")
    if parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise UpstreamError("The upstream has a scheme, a host and a port, and no user, path, query or fragment.")
    return f"{parts.scheme}://{parts.netloc}"

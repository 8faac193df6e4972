"""The head of a request: the checks of RFC 9112 that the parser does not make, and the fast path for a plain head.

The parser is strict about lines, names, lengths and chunks. The other checks are here: version and Host (`host_field`),
transfer codings other than `chunked`, chunks in HTTP/1.0, and the form of the target.
"""

from __future__ import annotations

from collections.abc import Sequence

from httptools import HttpParserInvalidURLError, parse_url

from semel.kernel.errors import Refused
from semel.server.http.answer import Header
from semel.server.http.host_field import head_flaw

SPECIAL = frozenset((b"host", b"transfer-encoding", b"expect", b"upgrade"))
"""Headers that the host acts on; a head that has only `Host` of them is a plain one."""
KNOWN_HOSTS = 1_024
KNOWN_HOST_BYTES = 256
"""A longer Host is checked each time and not remembered, because many of them would fill the memory."""

_CONTINUE = b"100-continue"
_NO_TARGET = "The target of a request must be a path, or an http or https URL."
_good_hosts: set[bytes] = set()
"""Values of Host that passed the check."""


def _refuse(message: str) -> Refused:
    """The refusal of a head, to be raised through the parser, which stops there."""
    return Refused("INVALID_REQUEST", message)


def is_plain(version: str, special: Sequence[Header]) -> bool:
    """Whether a head needs no check, because its only special header is a Host that passed the check before."""
    return version == "1.1" and len(special) == 1 and special[0][0] == b"host" and special[0][1] in _good_hosts


def check_head(version: str, special: Sequence[Header]) -> None:
    """Refuse a version, a Host or a transfer coding that RFC 9112 does not allow; `special` are the headers of that
    kind.
    """
    flaw = head_flaw(version, special)
    if flaw is not None:
        raise _refuse(flaw)
    codings = [value for name, value in special if name == b"transfer-encoding"]
    if codings:
        _check_coding(version, codings)
    _remember_host(special)


def _remember_host(special: Sequence[Header]) -> None:
    if len(_good_hosts) >= KNOWN_HOSTS:
        _good_hosts.clear()
    _good_hosts.update(value for name, value in special if name == b"host" and len(value) <= KNOWN_HOST_BYTES)


def _check_coding(version: str, codings: Sequence[bytes]) -> None:
    if version == "1.0":
        raise _refuse("HTTP/1.0 has no Transfer-Encoding: send a Content-Length.")
    if len(codings) > 1 or codings[0].lower() != b"chunked":
        raise _refuse("The only Transfer-Encoding that is accepted is chunked.")


def target_of(method: str, url: bytes, headers: list[Header]) -> tuple[bytes, bytes]:
    """Path and query of a target in origin form, absolute form, or `*` for OPTIONS; other forms are refused.

    The authority of an absolute target replaces the Host header, as RFC 9112 requires.
    """
    if url[:1] == b"/":
        if b"#" in url:
            raise _refuse("The target of a request must not have a fragment.")
        raw_path, _, query = url.partition(b"?")
        return raw_path, query
    if url == b"*" and method == "OPTIONS":
        return url, b""
    return _absolute(url, headers)


def _absolute(url: bytes, headers: list[Header]) -> tuple[bytes, bytes]:
    try:
        parsed = parse_url(url)
    except HttpParserInvalidURLError:
        raise _refuse(_NO_TARGET) from None
    if (parsed.schema or b"").lower() not in (b"http", b"https"):
        raise _refuse(_NO_TARGET)
    user: bytes | None = parsed.userinfo
    fragment: bytes | None = parsed.fragment
    if not parsed.host or user is not None or fragment is not None:
        raise _refuse("A URL as target must have a host, and neither a user nor a fragment.")
    authority = b"[%b]" % parsed.host if b":" in parsed.host else parsed.host
    if parsed.port is not None:
        authority += b":%d" % parsed.port
    headers[:] = [(name, authority) if name == b"host" else (name, value) for name, value in headers]
    return parsed.path or b"/", parsed.query or b""


def expects_continue(version: str, special: Sequence[Header]) -> bool:
    """Whether the client waits for `100 Continue` before it sends its body; HTTP/1.0 does not have it."""
    return version == "1.1" and any(name == b"expect" and value.lower() == _CONTINUE for name, value in special)


def announced_length(headers: Sequence[Header]) -> int:
    """The Content-Length of the head; 0 without one."""
    return max((int(value) for name, value in headers if name == b"content-length"), default=0)


def has_body(headers: Sequence[Header]) -> bool:
    """Whether the head announces a body."""
    return announced_length(headers) > 0 or any(name == b"transfer-encoding" for name, _ in headers)


def asks_for_websocket(headers: Sequence[Header]) -> bool:
    """Whether it is a WebSocket handshake; the parser has seen `Connection: upgrade`."""
    upgrade = [value.lower() for name, value in headers if name == b"upgrade"]
    return upgrade == [b"websocket"]

"""The arguments of `post` as a message, checked before anything is stored.

Framing headers are the outbox's own, credentials in a URL are refused because URLs are shown, and the key goes into
`key=` alone, so that every attempt of a message has the same key.
"""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from semel.once.errors import InvalidKey
from semel.once.exchange import request_fingerprint
from semel.once.identity import identity, text_of_id
from semel.once.messages import EnvSecret, HeaderValue, OutboxMessage

UNSAID: Any = object()
MAX_URL = 8_192
MAX_HEADERS = 64
MAX_HEADER_BYTES = 8_192

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_URL = re.compile(r"[\x21-\x7e]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_OWN = frozenset({"connection", "content-length", "host", "idempotency-key", "te", "trailer", "transfer-encoding"})


class MessageDraft(NamedTuple):
    """The arguments of `post`."""

    url: str
    key: object
    method: str = "POST"
    json: Any = UNSAID
    data: bytes | str | None = None
    headers: Mapping[str, HeaderValue] | None = None
    order_by: object = None


def message_of(draft: MessageDraft, max_body: int) -> OutboxMessage:
    """The message of a draft. Raises `InvalidKey` if it cannot be sent."""
    method, url = draft.method.upper(), checked_url(draft.url)
    if not _TOKEN.fullmatch(method):
        raise InvalidKey(f"{draft.method!r} is not an HTTP method.")
    body, kind = _content(draft)
    if len(body) > max_body:
        raise InvalidKey(f"The body has {len(body)} bytes: at most {max_body} are allowed.")
    headers = _headers(draft.headers or {}, kind)
    print_ = request_fingerprint(method, url.encode(), b"", _content_type(headers), body)
    key = identity(None, draft.key).key
    order_by = None if draft.order_by is None else text_of_id("order_by", draft.order_by)
    if not key.isascii():
        raise InvalidKey(f"The key must be of ASCII characters, because it goes into a header: {key[:40]!r}.")
    return OutboxMessage(key, method, url, headers, body, print_, order_by)


def checked_url(url: str) -> str:
    """The URL without its fragment. Raises `InvalidKey` if no request can be sent to it."""
    url = url.partition("#")[0]
    try:
        parts = urlsplit(url)
        is_fit = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, is_fit = urlsplit(""), False
    if not is_fit or not _URL.fullmatch(url) or len(url) > MAX_URL:
        raise InvalidKey(
            f"The URL must be http:// or https:// with a host, percent-encoded, of at most {MAX_URL} characters."
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidKey("The URL contains credentials: pass them in a header, with EnvSecret.")
    return url


def _content(draft: MessageDraft) -> tuple[bytes, str | None]:
    """The body and its content type. JSON members are sorted, so that equal values have equal bytes."""
    if draft.json is UNSAID:
        if draft.data is None:
            return b"", None
        if isinstance(draft.data, str):
            return draft.data.encode(), "text/plain; charset=utf-8"
        return bytes(draft.data), "application/octet-stream"
    if draft.data is not None:
        raise InvalidKey("Pass json= or data=, not both.")
    try:
        text = json_module.dumps(draft.json, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode(), "application/json"
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidKey(f"The body cannot be written as JSON: {error}.") from None


def _headers(given: Mapping[str, HeaderValue], kind: str | None) -> dict[str, HeaderValue]:
    if len(given) > MAX_HEADERS:
        raise InvalidKey(f"A message may have at most {MAX_HEADERS} headers.")
    for name, value in given.items():
        _check_header(name, value)
    names = {name.lower() for name in given}
    if len(names) < len(given):
        raise InvalidKey("A header name occurs twice: pass each header once.")
    return dict(given) if kind is None or "content-type" in names else {"Content-Type": kind, **given}


def _check_header(name: str, value: HeaderValue) -> None:
    """Refuse a header that cannot be sent. Errors never contain the value, which may be a secret."""
    if not _TOKEN.fullmatch(name):
        raise InvalidKey(f"{name!r} is not a header name.")
    if name.lower() in _OWN:
        raise InvalidKey(f"The header {name} is set by the outbox: pass the key as key=.")
    if isinstance(value, EnvSecret) and not _VARIABLE.fullmatch(value.name):
        raise InvalidKey(f"The secret of the header {name} must name an environment variable.")
    text = value.prefix if isinstance(value, EnvSecret) else value
    if not is_header_value(text):
        raise InvalidKey(f"The value of the header {name} must be one line of at most {MAX_HEADER_BYTES} characters.")


def is_header_value(text: object) -> bool:
    """Whether a text may be a header value."""
    return isinstance(text, str) and len(text) <= MAX_HEADER_BYTES and _VALUE.fullmatch(text) is not None


def _content_type(headers: Mapping[str, HeaderValue]) -> bytes:
    found = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    return found.encode("latin-1") if isinstance(found, str) else b""

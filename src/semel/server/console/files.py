"""The files of the console: `/console` and all below `/console/static/`, from the folder `static` of the package.

The pages are open to every caller, because they hold nothing of what the server stores: each call that they make
carries the credential of the person in front of them. They set no cookie. The Content-Security-Policy allows no script,
style, image or connection but those of this origin, no inline script or style, no frame, and no assignment of markup
(`require-trusted-types-for`), so that stored content can only be shown as text.

The files are read and compressed once. A crash changes nothing.
"""

from __future__ import annotations

import gzip
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from semel.kernel.errors import Refused
from semel.kernel.http_answer import Header
from semel.server.http.answer import Answer, header_block
from semel.server.http.request import Request
from semel.server.surface import HttpSurface
from semel.server.thread_pool import apart

PAGE = b"/console"
FILES = b"/console/static/"
STATIC = Path(__file__).parent / "static"
MADE_BYTES = 256 * 1024
"""The size of all files, about: they are read and compressed once, in a thread."""

POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    b"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
    (b"vary", b"Accept-Encoding"),
)
_COMMON = header_block(_HEADERS)
_KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}


class ConsoleFile(NamedTuple):
    """One file, as it is and compressed."""

    kind: bytes
    etag: bytes
    content: bytes
    zipped: bytes


class ConsoleSurface(HttpSurface):
    """The surface of the console's files. Used on the event loop only."""

    surface = "console"
    allow = b"GET, HEAD, OPTIONS"

    def __init__(self) -> None:
        self._files: dict[bytes, ConsoleFile] | None = None

    def owns(self, raw_path: bytes) -> bool:
        """Whether a path belongs to the console."""
        return is_of_console(raw_path)

    def common(self, request: Request) -> bytes:
        """Header lines of every answer."""
        return _COMMON

    def handle(self, request: Request) -> Answer | None:
        """Answer one request."""
        if request.method not in ("GET", "HEAD"):
            headers = ((b"allow", b"GET, HEAD"),)
            raise Refused("METHOD_NOT_ALLOWED", f"{request.method} is not used here.", headers=headers)
        if self._files is not None:
            return self._answer(request, self._files)
        request.later(self._first(request))
        return None

    async def _first(self, request: Request) -> Answer:
        if self._files is None:
            self._files = await apart(MADE_BYTES, read_files)
        return self._answer(request, self._files)

    def _answer(self, request: Request, files: dict[bytes, ConsoleFile]) -> Answer:
        if request.raw_path == PAGE + b"/":
            return Answer(308, [(b"location", b"../console")])
        found = files.get(request.raw_path)
        if found is None:
            raise Refused("NOT_FOUND", "The console has no such file; it begins at /console.")
        is_zipped = _takes_gzip(request.fields.get(b"accept-encoding") or b"")
        etag = b'"%s%s"' % (found.etag, b"-gzip" if is_zipped else b"")
        if request.fields.get(b"if-none-match") == etag:
            return Answer(304, [(b"etag", etag)])
        headers: list[Header] = [(b"content-type", found.kind), (b"etag", etag)]
        if is_zipped:
            return Answer(200, [*headers, (b"content-encoding", b"gzip")], found.zipped)
        return Answer(200, headers, found.content)


def is_of_console(raw_path: bytes) -> bool:
    """Whether a path is that of the console or below it."""
    return raw_path == PAGE or raw_path.startswith(PAGE + b"/")


def read_files() -> dict[bytes, ConsoleFile]:
    """Every file by its path."""
    found: dict[bytes, ConsoleFile] = {}
    for path in sorted(STATIC.rglob("*")):
        if path.suffix in _KINDS:
            content = path.read_bytes()
            name = path.relative_to(STATIC).as_posix().encode()
            etag = sha256(content).hexdigest()[:32].encode()
            zipped = gzip.compress(content, 9, mtime=0)
            found[FILES + name] = ConsoleFile(_KINDS[path.suffix], etag, content, zipped)
    found[PAGE] = found.pop(FILES + b"index.html")
    return found


def _takes_gzip(accepted: bytes) -> bool:
    """Whether an Accept-Encoding header names gzip with a weight above 0."""
    for part in accepted.split(b","):
        name, _, rest = part.strip().partition(b";")
        if name.strip().lower() == b"gzip":
            return rest.replace(b" ", b"").lower() not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False

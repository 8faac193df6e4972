"""Keys and values over HTTP: `GET` and `PUT /v1/kv/<name>`. Refusals are problem documents by default."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from urllib.parse import unquote_to_bytes

from prometheus_client.core import Metric
from semel.surfaces.kv.contract import ABSENT, KvContract, PutValue, ValueStored, find_value
from semel.surfaces.kv.settings import KvSettings

from semel.engine.contract import Write
from semel.kernel.errors import Refusal, Refused
from semel.kernel.keys import InvalidKeyError, pack, parse_idempotency_key
from semel.kernel.verdict import Window
from semel.server.auth.authentication import admit
from semel.server.auth.principals import Role
from semel.server.context import Context, caller_of
from semel.server.http.answer import CLOSE, NO_STORE, SECURITY, Answer, header_block
from semel.server.http.body import Bodies
from semel.server.http.request import Request
from semel.server.ops.metric_table import labelled
from semel.server.settings import settings_of
from semel.server.surface import RunningSurface

SURFACE = "kv"
PREFIX = b"/v1/kv/"
MAX_NAME_BYTES = 256

_COMMON = header_block((*SECURITY, (b"access-control-expose-headers", b"etag, idempotency-replayed, x-request-id")))
_ROLES = {"PUT": Role.WRITE, "GET": Role.READ, "HEAD": Role.READ}
_ETAG = re.compile(rb'"([0-9]{1,18})"')


class KvHttp(RunningSurface):
    """Everything under `/v1/kv/`."""

    surface = SURFACE
    allow = b"GET, HEAD, OPTIONS, PUT"

    def __init__(self, context: Context) -> None:
        settings = settings_of(context.settings, KvSettings)
        self._context = context
        self._bodies = Bodies(settings.kv_max_value_bytes, context.settings.max_uploads_bytes)
        self._writes: Counter[str] = Counter()
        self.contract = KvContract(Window(settings.kv_idempotency_ttl_ms))

    def common(self, request: Request) -> bytes:
        """Header lines of every answer."""
        return _COMMON

    def handle(self, request: Request) -> Answer | None:
        """Check credential, name, method and right, in this order; then read or write."""
        principal = admit(self._context, request)
        name = unquote_to_bytes(request.raw_path[len(PREFIX) :])
        if not 1 <= len(name) <= MAX_NAME_BYTES:
            raise Refused("INVALID_REQUEST", f"A name has 1 to {MAX_NAME_BYTES} bytes.")
        role = _ROLES.get(request.method)
        if role is None:
            raise Refused(
                "METHOD_NOT_ALLOWED", f"{request.method} is not used here.", headers=((b"allow", self.allow),)
            )
        if not principal.may(role, SURFACE, name):
            raise Refused("FORBIDDEN", f"This credential may not {role.value} this name.")
        request.later(self._put(name, request) if role is Role.WRITE else self._get(name))
        return None

    async def _get(self, name: bytes) -> Answer:
        found = await self._context.engine.read(lambda reading: find_value(reading, name))
        if found is None:
            raise Refused("NOT_FOUND", "This name has no value.")
        return Answer(
            200, [(b"content-type", b"application/octet-stream"), _etag(found.version), NO_STORE], found.value
        )

    async def _put(self, name: bytes, request: Request) -> Answer:
        value = await self._bodies.read(request)
        if value is None:
            raise Refused("PAYLOAD_TOO_LARGE", f"A value has at most {self._bodies.max_bytes} bytes.", headers=(CLOSE,))
        command = _command(name, value, request)
        answer: ValueStored | Refusal = await self._context.engine.submit(
            Write(self.contract, command, len(value)), caller_of(request)
        )
        if isinstance(answer, Refusal):
            self._writes["refused"] += 1
            raise Refused.of(answer)
        self._writes["replayed" if answer.is_replayed else "stored"] += 1
        replayed = [(b"idempotency-replayed", b"true")] if answer.is_replayed else []
        return Answer(204, [_etag(answer.version), *replayed])

    def collect(self) -> Iterator[Metric]:
        """The metric families of the surface."""
        yield labelled("semel_kv_writes", "Writes by outcome", "outcome", self._writes)


def _command(name: bytes, value: bytes, request: Request) -> PutValue:
    """The command of a PUT. A retry is the same write if value and condition are the same."""
    fields = request.fields
    expected = ABSENT if fields.get(b"if-none-match") == b"*" else None
    wanted = fields.single(b"if-match", "INVALID_REQUEST")
    if wanted is not None:
        found = _ETAG.fullmatch(wanted)
        if found is None:
            raise Refused("INVALID_REQUEST", 'If-Match names one version, such as "1".')
        expected = int(found[1])
    try:
        key = parse_idempotency_key(fields.all(b"idempotency-key"))
    except InvalidKeyError as error:
        raise Refused("INVALID_IDEMPOTENCY_KEY", str(error)) from None
    fingerprint = sha256(b"%d:" % (-1 if expected is None else expected) + value).digest()
    return PutValue(name, value, expected, None if key is None else pack(key), fingerprint)


def _etag(version: int) -> tuple[bytes, bytes]:
    return b"etag", b'"%d"' % version

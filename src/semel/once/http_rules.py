"""The options of a middleware and its decisions for a request; shared by ASGI, WSGI and the proxy."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Required, TypedDict

from semel.kernel.keys import InvalidKeyError, parse_idempotency_key
from semel.once.calls import Elapsed, Flow, OncePolicy, entered, stored
from semel.once.claims import Act, FoundReceipt, Move, OnceClaim
from semel.once.errors import InvalidKey, OnceError, ResultError, StoreUnavailable, TableMissing
from semel.once.exchange import OnceAnswer, is_remembered, packed, problem, refusal, request_fingerprint, unpacked
from semel.once.functions import Once
from semel.once.identity import JoinedRequest, identity
from semel.once.table import DONE, NO_RESULT
from semel.once.units import Duration, Size, byte_count, milliseconds, seconds

UNSAID: Any = object()
REQUESTS = "request:"
"""Prefix of the scope of a request's receipt, which is distinct from that of a transaction with the same key."""


class RefusedRequest(Exception):  # noqa: N818 - it carries an answer, not an error
    """The request gets an answer without being run."""

    def __init__(self, answer: OnceAnswer) -> None:
        super().__init__(answer.status)
        self.answer = answer


@dataclass(frozen=True)
class Incoming:
    """A request, as the `scope` function of a middleware sees it."""

    method: str
    path: str
    query: bytes
    headers: Mapping[bytes, list[bytes]]
    environ: Mapping[str, Any] = field(repr=False)
    """The ASGI scope, or the WSGI environment."""

    @property
    def user(self) -> Any:
        """The user that an authentication middleware has set; None without one."""
        return self.environ.get("user")

    def header(self, name: str) -> str:
        """The first value of a header, or an empty string."""
        return self.headers.get(name.lower().encode(), [b""])[0].decode("latin-1")


class HttpOptions(TypedDict, total=False):
    """The options of a middleware, for type checkers; `HttpRules` has their defaults."""

    scope: Required[Callable[[Incoming], object] | None]
    methods: Collection[str]
    require: Sequence[str]
    keep: Duration
    lease: Duration
    wait: Duration
    headers: Collection[str]
    max_body: Size
    max_answer: Size
    on_crash: Literal["refuse", "retry"]
    fail_open: bool


class HttpRules:
    """The options of a middleware."""

    def __init__(
        self,
        store: Once,
        *,
        scope: Callable[[Incoming], object] | None = UNSAID,
        methods: Collection[str] = ("POST", "PATCH"),
        require: Sequence[str] = (),
        keep: Duration = "24h",
        lease: Duration = "60s",
        wait: Duration = "10s",
        headers: Collection[str] = ("location", "etag"),
        max_body: Size = "1MiB",
        max_answer: Size = "1MiB",
        on_crash: Literal["refuse", "retry"] = "refuse",
        fail_open: bool = False,
    ) -> None:
        if scope is UNSAID:
            raise InvalidKey(
                "Pass scope=, a function from request to tenant, or scope=None for one scope of all callers."
            )
        self.once = store
        self.fail_open = fail_open
        self.max_body, self.max_answer = byte_count(max_body), byte_count(max_answer)
        self.policy = OncePolicy(store.codec, "wait", seconds(wait), on_crash)
        self._scope = scope
        self._methods = frozenset(method.upper() for method in methods)
        self._require = tuple(require)
        self._keep_ms, self._lease_ms = milliseconds(keep), milliseconds(lease)
        self._kept = frozenset(name.lower().encode() for name in headers)

    def key_of(self, incoming: Incoming) -> str | None:
        """The key of a request; None if it runs without one. Raises `RefusedRequest` (400) for a bad key."""
        if incoming.method not in self._methods:
            return None
        try:
            key = parse_idempotency_key(list(incoming.headers.get(b"idempotency-key", ())))
        except InvalidKeyError as error:
            raise RefusedRequest(problem(400, "invalid_key", str(error))) from error
        if key is None and any(incoming.path.startswith(prefix) for prefix in self._require):
            raise RefusedRequest(problem(400, "key_required", "Send an Idempotency-Key with this request."))
        return None if key is None else key.decode("ascii")

    def claim(self, incoming: Incoming, key: str, body: bytes) -> OnceClaim:
        """The claim of a request."""
        caller = identity(None if self._scope is None else self._scope(incoming), key)
        who = caller._replace(scope=REQUESTS + caller.scope)
        kind = incoming.headers.get(b"content-type", [b""])[0]
        path = incoming.path.encode("utf-8", "surrogateescape")
        print_ = request_fingerprint(incoming.method, path, incoming.query, kind, body)
        return OnceClaim(who, print_, uuid.uuid4().hex, self._keep_ms, self._lease_ms)

    def joined(self, claim: OnceClaim) -> JoinedRequest:
        """The request that a transaction of its handler may join."""
        caller = claim.who._replace(scope=claim.who.scope.removeprefix(REQUESTS))
        return JoinedRequest(caller, claim.fingerprint, lambda: self.once.store.change(claim.to(Act.JOIN)))

    def entered(self, claim: OnceClaim, elapsed: Elapsed) -> Flow[FoundReceipt]:
        """Wait until the request may run or has a stored answer."""
        return entered(claim, self.policy, elapsed, lambda: None)

    def ended(self, claim: OnceClaim, answer: OnceAnswer) -> Flow[None]:
        """Store the answer, or release the key if the answer is not remembered."""
        if not is_remembered(answer.status):
            yield from _released(claim)
            return
        yield from stored(claim, DONE, packed(answer, self._kept))

    def outgrown(self, claim: OnceClaim, status: int) -> Flow[None]:
        """Store that the request took effect and that its answer is too large to replay."""
        if not is_remembered(status):
            yield from _released(claim)
            return
        why = f"it has more than {self.max_answer} bytes"
        yield from stored(claim, NO_RESULT, why)

    def told(self, found: FoundReceipt) -> OnceAnswer:
        """The answer to a request that does not run."""
        return unpacked(found.result or "") if found.move is Move.REPLAY else refusal(ResultError())

    def too_large(self) -> OnceAnswer:
        """The answer to a body that is too large to compare."""
        detail = f"A request with an Idempotency-Key may have at most {self.max_body} bytes."
        return problem(413, "body_too_large", detail)

    def without_length(self) -> OnceAnswer:
        """The answer to a body of unknown length."""
        return problem(411, "length_required", "A request with an Idempotency-Key must have a Content-Length.")


def _released(claim: OnceClaim) -> Flow[None]:
    """Release the key. If the store is unavailable, the key stays claimed until its lease ends."""
    with suppress(StoreUnavailable, TableMissing):
        yield claim.to(Act.RELEASE)


def refused(error: OnceError) -> OnceAnswer:
    """The answer to an error of this package."""
    return refusal(error)

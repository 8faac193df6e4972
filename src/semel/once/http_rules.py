"""The options of a middleware and its decisions for a request; shared by ASGI, WSGI and the proxy.

| the handler | its key |
|---|---|
| answers 2xx, 3xx, or a 4xx that no retry changes | the answer is stored, and replayed |
| answers 401, 403, 408, 409, 421, 425, 429, or 503 with `Retry-After` | is released: the application did nothing |
| raises, or answers another 5xx | `on_error`: by default the outcome is open, and `on_crash` decides as after a crash |
| joined a transaction that was rolled back | is released: nothing happened |
| joined a transaction that was committed, and then raised or answered 5xx | a retry runs it: the transaction replays |
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Required, TypedDict, TypeVar, get_args

from semel.kernel.keys import InvalidKeyError, parse_idempotency_key
from semel.once.calls import Elapsed, Flow, Look, OncePolicy, entered, stored
from semel.once.claims import Act, FoundReceipt, Move, OnceClaim
from semel.once.compared import content_fingerprint
from semel.once.deferred_import import warn
from semel.once.errors import (
    InFlight,
    InvalidKey,
    KeyMismatch,
    OnceError,
    OutcomeUnknown,
    ResultError,
    RunAgain,
    StoreUnavailable,
    TableMissing,
)
from semel.once.exchange import OnceAnswer, packed, problem, refusal, request_fingerprint, says_nothing_done, unpacked
from semel.once.functions import Once, check_choice
from semel.once.identity import fingerprint, identity, is_async
from semel.once.request import KeyedRequest, Standing
from semel.once.table import DONE, NO_RESULT, receipts_of
from semel.once.units import Duration, Size, byte_count, lasting, seconds

UNSAID: Any = object()
REQUESTS = "request:"
"""Prefix of the scope of a request's receipt, which is distinct from that of a transaction with the same key."""
LARGE_BODY = 32_768
"""Bytes from which the comparison of a body would hold up an event loop."""

OnCrash = Literal["refuse", "retry"]
OnError = Literal["settle", "release", "remember"]
V = TypeVar("V")


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


Compare = Callable[[Incoming, bytes], Any]
"""Gets a request and its body; returns the values that must be equal in two requests with one key."""


class HttpOptions(TypedDict, total=False):
    """The options of a middleware, for type checkers; `HttpRules` has their defaults."""

    scope: Required[Callable[[Incoming], object] | None]
    methods: Collection[str]
    require: Sequence[str]
    keep: Duration
    lease: Duration
    wait: Duration
    compare: Compare | Mapping[str, Compare]
    max_body: Size | Mapping[str, Size]
    max_answer: Size
    on_crash: OnCrash
    on_error: OnError
    fail_open: bool


class ByPath(Generic[V]):
    """An option that may differ by path: the longest prefix decides."""

    def __init__(self, option: str, given: object, checked: Callable[[Any], V], default: V) -> None:
        rows = given if isinstance(given, Mapping) else {"": given}
        found = [(checked_path(option, path) if path else "", checked(value)) for path, value in rows.items()]
        self._rows = sorted(found, key=lambda row: -len(row[0]))
        self._default = default

    def at(self, path: str) -> V:
        """The value for a path."""
        return next((value for prefix, value in self._rows if path.startswith(prefix)), self._default)


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
        compare: Compare | Mapping[str, Compare] | None = None,
        max_body: Size | Mapping[str, Size] = "1MiB",
        max_answer: Size = "1MiB",
        on_crash: OnCrash = "refuse",
        on_error: OnError = "settle",
        fail_open: bool = False,
    ) -> None:
        if not isinstance(store, Once):
            raise InvalidKey(f"store= must be an Once, as Once('receipts.db'), not a {type(store).__qualname__}.")
        check_choice("on_crash", on_crash, get_args(OnCrash))
        check_choice("on_error", on_error, get_args(OnError))
        check_choice("fail_open", fail_open, (False, True))
        self.once = store
        self.fail_open = fail_open
        self.max_answer = byte_count(max_answer)
        self._max_body = ByPath("max_body", max_body, byte_count, byte_count("1MiB"))
        self._compare = ByPath("compare", compare, checked_compare, None)
        self.policy = OncePolicy(store.codec, "wait", seconds(wait), on_crash)
        self._on_error = on_error
        self._scope = checked_scope(scope)
        self._methods = frozenset(method.upper() for method in checked_texts("methods", methods, "POST"))
        if not self._methods or not all(method.isalpha() for method in self._methods):
            raise InvalidKey(f"methods must name the methods of HTTP that have keys, as {{'POST'}}, not {methods!r}.")
        self._require = tuple(checked_path("require", path) for path in checked_texts("require", require, "/orders"))
        self._keep_ms, self._lease_ms = lasting("keep", keep), lasting("lease", lease)

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

    def max_body(self, incoming: Incoming) -> int:
        """The largest body that is compared, in bytes."""
        return self._max_body.at(incoming.path)

    def claim(self, incoming: Incoming, key: str, body: bytes) -> OnceClaim:
        """The claim of a request. Raises `RefusedRequest` (400) if nobody says whose key it is."""
        scope = None if self._scope is None else scope_of(self._scope, incoming)
        caller = identity(scope, key)
        who = caller._replace(scope=REQUESTS + caller.scope)
        kind = incoming.headers.get(b"content-type", [b""])[0]
        path = incoming.path.encode("utf-8", "surrogateescape")
        compare = self._compare.at(incoming.path)
        if compare is None:
            print_ = content_fingerprint(incoming.method, path, incoming.query, kind, body)
        else:
            print_ = request_fingerprint(incoming.method, path, b"", b"", compared_fingerprint(compare(incoming, body)))
        return OnceClaim(who, print_, uuid.uuid4().hex, self._keep_ms, self._lease_ms)

    def request(self, claim: OnceClaim) -> KeyedRequest:
        """The request that transactions of its handler may join."""
        return KeyedRequest(claim.who._replace(scope=claim.who.scope.removeprefix(REQUESTS)), claim, self.once.store)

    def entered(self, claim: OnceClaim, elapsed: Elapsed) -> Flow[FoundReceipt]:
        """Wait until the request may run or has a stored answer."""
        return entered(claim, self.policy, elapsed, lambda: None)

    def answered(self, request: KeyedRequest, answer: OnceAnswer) -> Flow[None]:
        """Store the answer, or release the key, or leave the outcome open."""
        yield from self._settled(request, answer, DONE, packed(answer))

    def unstored(self, request: KeyedRequest, answer: OnceAnswer, why: str) -> Flow[None]:
        """Store that the request took effect, and that its answer cannot be replayed."""
        yield from self._settled(request, answer, NO_RESULT, why)

    def raised(self, request: KeyedRequest) -> Flow[None]:
        """Settle a request whose handler raised or was cut off. If the store is unavailable, its lease ends."""
        request.is_answered = True
        with suppress(StoreUnavailable, TableMissing):
            if self.refusal_of(request, None) is not None:
                yield request.claim.to(Act.RELEASE)
            elif request.has_joined:
                standing = yield from _standing(request)
                yield request.claim.to(Act.RELEASE if standing is Standing.ROLLED_BACK else Act.ABANDON)
            else:
                is_released = request.did_nothing or self._on_error == "release"
                yield request.claim.to(Act.RELEASE if is_released else Act.ABANDON)

    def _settled(self, request: KeyedRequest, answer: OnceAnswer, state: str, text: str) -> Flow[None]:
        request.is_answered = True
        is_failure = answer.status >= 500
        if is_failure and self.refusal_of(request, None) is not None:
            yield from _released(request.claim)
        elif request.has_joined:
            standing = yield from _standing(request)
            if standing is Standing.ROLLED_BACK:
                yield from _released(request.claim)
            elif standing is Standing.UNKNOWN or is_failure or says_nothing_done(answer):
                yield from _left_open(request.claim)  # its receipt is marked: a retry runs
            else:
                yield from stored(request.claim, state, text)
        elif request.did_nothing or says_nothing_done(answer) or (is_failure and self._on_error == "release"):
            yield from _released(request.claim)
        elif is_failure and self._on_error == "settle":
            yield from _left_open(request.claim)
        else:
            yield from stored(request.claim, state, text)

    def refusal_of(self, request: KeyedRequest, fault: OnceError | None) -> OnceAnswer | None:
        """The answer in place of a failure: what the store said of the request, or the database of its joined block."""
        found = fault or request.fault
        is_known = fault is not None or isinstance(found, KeyMismatch | InFlight | RunAgain | OutcomeUnknown)
        return refusal(found) if found is not None and is_known else None

    def stored_answer(self, found: FoundReceipt) -> OnceAnswer:
        """The answer to a request that does not run."""
        return unpacked(found.result or "") if found.move is Move.REPLAY else refusal(ResultError())

    def too_large(self, incoming: Incoming) -> OnceAnswer:
        """The answer to a body that is too large to compare."""
        detail = f"A request with an Idempotency-Key may have at most {self.max_body(incoming)} bytes here."
        return problem(413, "body_too_large", detail)

    def too_large_joined(self) -> ResultError:
        """The error for an answer that can neither be held back nor sent, because its transaction is not over."""
        return ResultError(
            f"This answer streams, or has more than {self.max_answer} bytes, and the transaction of its request is not "
            "over: commit before the answer, raise max_answer=, or pass a key to once.transaction."
        )

    def without_length(self) -> OnceAnswer:
        """The answer to a body of unknown length."""
        return problem(411, "length_required", "A request with an Idempotency-Key must have a Content-Length.")


def checked_texts(option: str, given: Any, example: str) -> tuple[str, ...]:
    """The texts of an option. A single text would be split into its letters."""
    found = (given,) if isinstance(given, str | bytes) else tuple(given)
    if isinstance(given, str | bytes) or not all(isinstance(one, str) for one in found):
        raise InvalidKey(f"{option} must be a list of texts, as [{example!r}], not {given!r}.")
    return found


def checked_path(option: str, path: object) -> str:
    """A prefix of paths. One without its slash would never match."""
    if not (isinstance(path, str) and path.startswith("/")):
        raise InvalidKey(f"{option}: a prefix of paths begins with a slash, as '/orders', and {path!r} does not.")
    return path


def checked_compare(compare: Any) -> Any:
    """A `compare=` of a door: a function that returns the values to compare, or None for the usual comparison."""
    if compare is not None and not callable(compare):
        raise InvalidKey(f"compare= must be a function that returns the values to compare, not {compare!r}.")
    if is_async(compare):
        raise InvalidKey("compare= must not be a coroutine function: the values are needed before the request runs.")
    return compare


def compared_fingerprint(values: Any) -> bytes:
    """The fingerprint of what `compare=` has returned. Raises `RefusedRequest` (400): a client may have sent a NaN."""
    try:
        return fingerprint(values)
    except ResultError as error:
        raise RefusedRequest(problem(400, "invalid_body", f"{error} Nothing was run.")) from error


def checked_scope(scope: Any) -> Any:
    """A `scope=` of a door: a function from request to tenant, or None for one scope of all callers."""
    if scope is UNSAID or not (scope is None or callable(scope)):
        raise InvalidKey("Pass scope=, a function from request to tenant, or scope=None for one scope of all callers.")
    if is_async(scope):
        raise InvalidKey("scope= must not be a coroutine function: let an earlier middleware find out who calls.")
    return scope


def scope_of(scope: Callable[[Any], object], request: Any) -> object:
    """The tenant of a request. Raises `RefusedRequest` (400) for None: nameless callers would share their keys."""
    found = scope(request)
    if found is None or found == "":
        warn("A request has no scope, so it was refused: the function of scope= returned %r.", found)
        detail = "A request with an Idempotency-Key must show who sends it."
        raise RefusedRequest(problem(400, "idempotency_scope_missing", detail))
    return found


def _standing(request: KeyedRequest) -> Flow[Standing]:
    """What the receipts of all blocks say together, read on other connections."""
    is_found: list[bool | None] = []
    for block in request.blocks:
        rows = yield Look(block.witness, receipts_of(block.table).look(block.who))
        is_found.append(None if rows is None else block.is_shown_by(rows, request.claim.owner))
    return request.standing(is_found)


def _released(claim: OnceClaim) -> Flow[None]:
    """Release the key. If the store is unavailable, the key stays claimed until its lease ends."""
    with suppress(StoreUnavailable, TableMissing):
        yield claim.to(Act.RELEASE)


def _left_open(claim: OnceClaim) -> Flow[None]:
    """Let the next request decide. If the store is unavailable, it waits until the lease ends."""
    with suppress(StoreUnavailable, TableMissing):
        yield claim.to(Act.ABANDON)

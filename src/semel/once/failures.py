"""Which exceptions of a function show that nothing happened. Only those release its key.

A read timeout says that no answer came, not that nothing was done. So an exception leaves the outcome open unless it
shows the opposite, and `on_crash` then decides as after a crash.

| the exception, or one that it wraps | the key |
|---|---|
| a time limit, a lost connection, a broken answer, a cancellation | is not released: the outcome is open |
| an answer with a status that is not 4xx | is not released |
| an error of `semel` that says that the outcome is unknown | is not released |
| a refused connection, a name without an address, a pool without a free connection | is released: nothing was sent |
| the same of a library that tries again by itself and shows only its last attempt | is not released |
| what became of a redirect, and an answer to any request but the first | is not released: the first may have done it |
| any other | is released |

The whole chain is looked at: `__cause__`, `__context__`, the members of groups, and what an exception keeps in its
arguments and attributes. An exception that wraps an open one is open. `releases=` and `unknown=` of a function come
before this table.

Classes of other packages are known by name, so that nothing is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from operator import attrgetter
from typing import Any

MAX_CHAIN = 100
"""Exceptions of one chain that are looked at; a longer one is open."""


class Showing(Enum):
    """What an exception shows about the effect."""

    OPEN = "open"
    """The effect may have happened."""
    UNSENT = "unsent"
    """Nothing was sent."""
    WRAPPER = "wrapper"
    """What the exception inside it shows; open if there is none."""
    ANSWER = "answer"
    """By the status of the answer that it carries."""
    OTHER = "other"
    """It comes from the function itself, or is a refusal."""


def leaves_open(error: BaseException, before: BaseException | None = None) -> bool:
    """Whether the effect may have happened, although the function raised this.

    `before` is the exception that was being handled when the function was called: it is not the function's own.
    """
    return _Chain(before).show(error) is Showing.OPEN


def in_chain(error: BaseException, kinds: tuple[type[BaseException], ...], before: BaseException | None) -> bool:
    """Whether an exception, or one that it wraps, is of one of some classes."""
    chain, waiting = _Chain(before), [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, kinds):
            return True
        waiting += chain.inside(one)
    return False


class _Chain:
    """An exception and all that it wraps. Each exception is looked at once, and no more than `MAX_CHAIN`."""

    def __init__(self, before: BaseException | None) -> None:
        self._seen = set() if before is None else {id(before)}

    def inside(self, error: BaseException) -> list[BaseException]:
        """What an exception wraps directly."""
        self._seen.add(id(error))
        members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        kept = [*error.args, *vars(error).values(), *(_attempts(error) or ())]
        found = []
        for one in (error.__cause__, error.__context__, *members, *kept):
            if isinstance(one, BaseException) and id(one) not in self._seen and len(self._seen) <= MAX_CHAIN:
                self._seen.add(id(one))
                found.append(one)
        return found

    def show(self, error: BaseException, *, is_connecting: bool = False) -> Showing:
        """What an exception shows. Errors of the network below one that says that connecting failed are its parts."""
        known = _known(error)
        if len(self._seen) > MAX_CHAIN or (known is Showing.OPEN and not (is_connecting and _is_low(error))):
            return Showing.OPEN
        is_part = is_connecting or (known is Showing.UNSENT and not _is_low(error))
        shown = {self.show(one, is_connecting=is_part) for one in self.inside(error)}
        if Showing.OPEN in shown:
            return Showing.OPEN
        if known is Showing.WRAPPER and Showing.UNSENT not in shown:
            return Showing.OTHER if is_connecting else Showing.OPEN
        return Showing.UNSENT if known is Showing.UNSENT or Showing.UNSENT in shown else Showing.OTHER


_LOW = frozenset({"anyio", "asyncio", "builtins", "concurrent", "httpcore", "socket", "ssl", "trio"})


def _is_low(error: BaseException) -> bool:
    """Whether its class belongs to what HTTP libraries are made of."""
    return _package(type(error).__module__) in _LOW


_RENAMED = {"httpcore2": "httpcore", "httpx2": "httpx"}


def _package(module: str) -> str:
    """The package of a module, under the name that the tables have."""
    package = module.partition(".")[0]
    return _RENAMED.get(package, package)


def _known(error: BaseException) -> Showing:
    """What its class shows, or the most derived of its base classes that is known."""
    if _is_behind_redirect(error):
        return Showing.OPEN
    for kind in type(error).__mro__:
        found = _CLASSES.get((_package(kind.__module__), kind.__qualname__))
        if found is None:
            continue
        shown = found if isinstance(found, Showing) else found(error)
        if shown is Showing.ANSWER:
            status = status_of(error)
            is_refusal = status is not None and 400 <= status < 500 and not _was_repeated(error)
            return Showing.OTHER if is_refusal else Showing.OPEN
        return shown
    return Showing.OTHER if isinstance(error, Exception) else Showing.OPEN


def _attempts(error: BaseException) -> list[object] | None:
    """What the attempts of `urllib3.MaxRetryError` met. It keeps them only in the frame that raised it."""
    trace, history = error.__traceback__ if type(error).__name__ == "MaxRetryError" else None, None
    while trace is not None:
        history = trace.tb_frame.f_locals.get("history", history)
        trace = trace.tb_next
    return None if history is None else [one.error for one in history]


_FOLLOWING = frozenset({
    ("aiohttp", "_request"), ("httpx", "_send_handling_redirects"), ("requests", "resolve_redirects"),
    ("urllib", "http_error_302"),
})  # fmt: skip
"""Functions that follow redirects. Those that also send the first request have the earlier answers as `history`."""


def _is_behind_redirect(error: BaseException) -> bool:
    """Whether it was raised when an earlier request had been answered. Often only the frames that it left show that."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        place = (_package(str(frame.f_globals.get("__name__"))), frame.f_code.co_name)
        if place in _FOLLOWING and frame.f_locals.get("history", True):
            return True
        trace = trace.tb_next
    return False


def _of_attempts(error: BaseException) -> Showing:
    """An attempt without an error had an answer, which asked for another one."""
    attempts = _attempts(error)
    return Showing.OPEN if attempts is None or None in attempts else Showing.WRAPPER


def status_of(error: BaseException) -> int | None:
    """The HTTP status of the answer that an error carries, however its library names it."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        response = response.get("ResponseMetadata", {})
        return response.get("HTTPStatusCode") if isinstance(response, dict) else None
    for owner, name in ((error, "http_status"), (error, "status"), (error, "code"), (response, "status_code")):
        with suppress(Exception):
            status = getattr(owner, name)
            if isinstance(status, int):
                return int(status)
    return None


_EARLIER = tuple(map(attrgetter, ("history", "response.history", "response.raw.retries.history")))
"""Where aiohttp, then requests and httpx, and then the urllib3 below requests keep what came before an answer."""


def _was_repeated(error: BaseException) -> bool:
    """Whether its answer is that to a redirect, or to the last of several attempts."""
    with suppress(Exception):  # botocore
        return bool(error.response["ResponseMetadata"]["RetryAttempts"])  # type: ignore[attr-defined]
    for earlier in _EARLIER:
        with suppress(Exception):
            if earlier(error):
                return True
    return False


def _of_os_error(error: BaseException) -> Showing:
    """An error without a number was made by a library, of those of several attempts."""
    return Showing.WRAPPER if getattr(error, "errno", None) is None else Showing.OPEN


_LOST_STATES = ("08", "57P")
"""Classes of SQLSTATE: the connection broke, or the server ended it."""


def _of_database_error(error: BaseException) -> Showing:
    """An error that the server reported rolled the statement back; without a report the connection was lost."""
    state = getattr(error, "sqlstate", None)
    if state is not None:
        return Showing.OPEN if str(state).startswith(_LOST_STATES) else Showing.OTHER
    return Showing.UNSENT if getattr(error, "pgconn", None) is not None else Showing.OPEN  # it is set while connecting


def _of_sqlstate(error: BaseException) -> Showing:
    return Showing.OPEN if str(getattr(error, "sqlstate", "")).startswith(_LOST_STATES) else Showing.OTHER


def _of_psycopg2(error: BaseException) -> Showing:
    """An error without a code was not reported by the server."""
    state = getattr(error, "pgcode", None)
    return Showing.OPEN if state is None or str(state).startswith(_LOST_STATES) else Showing.OTHER


_GRPC_ANSWERS = frozenset({
    "ALREADY_EXISTS", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNIMPLEMENTED",
})  # fmt: skip
"""Statuses by which a service says that it refused the call."""


def _of_grpc(error: BaseException) -> Showing:
    code: Any = None
    with suppress(Exception):
        code = error.code()  # type: ignore[attr-defined] # an `RpcError` of a call has it
    return Showing.OTHER if getattr(code, "name", "") in _GRPC_ANSWERS else Showing.OPEN


Known = Showing | Callable[[BaseException], Showing]
_NAMES: dict[Known, str] = {
    Showing.OPEN: """
        builtins.TimeoutError builtins.EOFError http.HTTPException ssl.SSLError subprocess.TimeoutExpired
        asyncio.LimitOverrunError concurrent.CancelledError concurrent.BrokenExecutor
        httpx.RequestError httpcore.TimeoutException httpcore.NetworkError httpcore.ProtocolError
        requests.RequestException urllib3.HTTPError aiohttp.ClientError stripe.APIConnectionError
        aiohttp.HttpProcessingError
        botocore.HTTPClientError botocore.IncompleteReadError botocore.ConnectionError botocore.EventStreamError
        botocore.ResponseParserError redis.ConnectionError redis.TimeoutError redis.InvalidResponse
        asyncpg.PostgresConnectionError asyncpg.ProtocolError tenacity.RetryError websockets.ConnectionClosed
        multiprocessing.TimeoutError celery.TimeoutError amqp.ConnectionError kombu.OperationalError
        billiard.SoftTimeLimitExceeded rq.BaseTimeoutException
        grpc.FutureTimeoutError grpc.FutureCancelledError
        anyio.BrokenResourceError anyio.ClosedResourceError anyio.EndOfStream anyio.IncompleteRead
        trio.BrokenResourceError trio.ClosedResourceError trio.TooSlowError
        semel.OutcomeUnknown semel.Fenced semel.ResultError semel.TransactionEnded semel.NoAnswerError
    """,
    Showing.UNSENT: """
        builtins.ConnectionRefusedError socket.gaierror socket.herror ssl.SSLCertVerificationError
        httpx.ConnectError httpx.ConnectTimeout httpx.PoolTimeout httpx.UnsupportedProtocol
        httpcore.ConnectError httpcore.ConnectTimeout httpcore.PoolTimeout httpcore.UnsupportedProtocol
        requests.ConnectTimeout requests.InvalidURL requests.MissingSchema requests.InvalidSchema requests.InvalidHeader
        urllib3.NewConnectionError urllib3.ConnectTimeoutError urllib3.NameResolutionError urllib3.EmptyPoolError
        urllib3.ClosedPoolError urllib3.LocationValueError
        aiohttp.ClientConnectorError aiohttp.ConnectionTimeoutError aiohttp.InvalidURL
        redis.MaxConnectionsError
        psycopg_pool.PoolTimeout psycopg_pool.PoolClosed psycopg_pool.TooManyRequests
    """,
    Showing.WRAPPER: """
        urllib.URLError requests.ConnectionError urllib3.SSLError urllib3.ProxyError
    """,
    Showing.ANSWER: """
        urllib.HTTPError httpx.HTTPStatusError requests.HTTPError aiohttp.ClientResponseError
        aiohttp.WSServerHandshakeError botocore.ClientError stripe.StripeError
    """,
    Showing.OTHER: "semel.InFlight semel.KeyMismatch semel.StoreUnavailable semel.StoreBusy",
    _of_os_error: "builtins.OSError",
    _of_database_error: "psycopg.OperationalError",
    _of_sqlstate: "asyncpg.PostgresError",
    _of_psycopg2: "psycopg2.OperationalError",
    _of_attempts: "urllib3.MaxRetryError",
    _of_grpc: "grpc.RpcError",
}
_CLASSES: dict[tuple[str, str], Known] = {
    (package, name): known
    for known, names in _NAMES.items()
    for package, _, name in (one.partition(".") for one in names.split())
}
"""By the package and the name of a class."""


def handled_now() -> BaseException | None:
    """The exception that is being handled where this is called."""
    return sys.exc_info()[1]

"""Which exceptions release a key: those that libraries raise when a real connection breaks, and what wraps them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import http.client
import importlib
import itertools
import os
import pkgutil
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from multiprocessing.pool import ThreadPool
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import amqp
import anyio
import asyncpg
import billiard.pool
import botocore.session
import celery
import grpc
import httpcore2
import httpx
import httpx2
import psycopg
import pytest
import redis
import redis.backoff
import redis.retry
import requests
import sqlalchemy
import stripe
import urllib3
from botocore.config import Config
from sqlalchemy.pool import NullPool

import semel.client.errors  # noqa: F401 - they are known
from semel.once import Once, OutcomeUnknown
from semel.once.failures import _CLASSES, leaves_open
from tests.harness.postgres.proxy import Proxy
from tests.harness.server import HOST
from tests.once.conftest import fresh_schema
from tests.once.cutting import LARGE, STATUSES, Cut, cutting

SECONDS = 25.0
"""How long a client waits for an answer, unless it never comes."""


def raised(call: Callable[[], object]) -> BaseException:
    """What a call raises."""
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - it is looked at
        return error
    raise AssertionError("it raised nothing")


def by_http_client(port: int, body: bytes) -> None:
    """The standard library."""
    connection = http.client.HTTPConnection(HOST, port, timeout=SECONDS)
    try:
        connection.request("POST", "/charges", body)
        answer = connection.getresponse()
        answer.read()
        if answer.status >= 400:
            raise urllib.error.HTTPError("/charges", answer.status, answer.reason, answer.headers, None)
    finally:
        connection.close()


def by_urllib(port: int, body: bytes) -> None:
    """The standard library. An error is an answer that is open, until the collector closes it in a later test."""
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/charges", body, timeout=SECONDS) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        error.close()
        raise


def by_httpx(port: int, body: bytes, client: Any = httpx, follow: bool = False) -> None:
    """A client of its own for each call."""
    url = f"http://{HOST}:{port}/charges"
    client.post(url, content=body, timeout=SECONDS, follow_redirects=follow).raise_for_status()


def by_httpx_async(port: int, body: bytes, **options: Any) -> None:
    """In an event loop."""

    async def main() -> None:
        async with httpx.AsyncClient(timeout=SECONDS, **options) as client:
            (await client.post(f"http://{HOST}:{port}/charges", content=body)).raise_for_status()

    asyncio.run(main())


def by_requests(port: int, body: bytes) -> None:
    """A session of its own for each call."""
    requests.post(f"http://{HOST}:{port}/charges", data=body, timeout=SECONDS).raise_for_status()


def by_urllib3(port: int, body: bytes, retries: Any = False) -> None:
    """Without retries."""
    with urllib3.PoolManager(timeout=SECONDS) as pool:
        answer = pool.request("POST", f"http://{HOST}:{port}/charges", body=body, retries=retries)
        if answer.status >= 400:
            raise urllib.error.HTTPError("/charges", answer.status, "", http.client.HTTPMessage(), None)


def by_urllib3_retries(port: int, body: bytes) -> None:
    """With them: its error says that there were too many."""
    by_urllib3(port, body, urllib3.Retry(1, allowed_methods=None))


def by_aiohttp(port: int, body: bytes, is_checked: bool = True) -> None:
    """In an event loop."""

    async def main() -> None:
        limit = aiohttp.ClientTimeout(total=SECONDS)
        async with (
            aiohttp.ClientSession(timeout=limit, raise_for_status=is_checked) as session,
            session.post(f"http://{HOST}:{port}/charges", data=body) as answer,
        ):
            await answer.read()
            answer.raise_for_status()

    asyncio.run(main())


def by_botocore(port: int, body: bytes, attempts: int = 1) -> None:
    """A message of SQS."""
    config = Config(read_timeout=SECONDS, connect_timeout=SECONDS, retries={"total_max_attempts": attempts})
    client = botocore.session.get_session().create_client(
        "sqs",
        region_name="eu-west-1",
        endpoint_url=f"http://{HOST}:{port}",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=config,
    )
    with contextlib.closing(client):
        client.send_message(QueueUrl=f"http://{HOST}:{port}/1/q", MessageBody=body.decode())


def by_stripe(port: int, body: bytes, retries: int = 0) -> None:
    """A charge."""
    client = stripe.StripeClient(
        "sk_test_none",
        base_addresses={"api": f"http://{HOST}:{port}"},
        max_network_retries=retries,
        http_client=stripe.RequestsClient(timeout=SECONDS),
    )
    client.v1.charges.create({"amount": 5, "currency": "eur", "description": body.decode()})


HTTP: dict[str, Callable[[int, bytes], None]] = {
    "http.client": by_http_client,
    "urllib": by_urllib,
    "httpx": by_httpx,
    "httpx2": lambda port, body: by_httpx(port, body, httpx2),
    "httpx, async": by_httpx_async,
    "requests": by_requests,
    "urllib3": by_urllib3,
    "urllib3, retries": by_urllib3_retries,
    "aiohttp": by_aiohttp,
    "botocore": by_botocore,
    "stripe": by_stripe,
}


def by_grpc(port: int, body: bytes) -> None:
    """A call of any service."""
    with grpc.insecure_channel(f"{HOST}:{port}") as channel:
        charge: Any = channel.unary_unary("/Bank/Charge")
        charge(body, timeout=SECONDS)


def by_redis(port: int, body: bytes, retries: int = 0) -> None:
    """A number that grows."""
    again = redis.retry.Retry(redis.backoff.NoBackoff(), retries)
    client = redis.Redis(HOST, port, socket_timeout=SECONDS, protocol=2, driver_info=None, retry=again)
    with contextlib.closing(client):
        client.rpush("charges", body)


def by_amqp(port: int, body: bytes) -> None:
    """The client of Celery and kombu."""
    with amqp.Connection(f"{HOST}:{port}", connect_timeout=SECONDS, read_timeout=SECONDS) as connection:
        connection.channel().basic_publish(amqp.Message(body), routing_key="charges")


def by_kombu(port: int, body: bytes) -> None:
    """A task of Celery."""
    app = celery.Celery(broker=f"amqp://{HOST}:{port}//", backend=None)
    app.conf.broker_transport_options = {"max_retries": 0}
    app.send_task("charge", [body.decode()], retry=False)


OTHERS: dict[str, Callable[[int, bytes], None]] = {
    "grpc": by_grpc,
    "redis": by_redis,
    "amqp": by_amqp,
    "kombu": by_kombu,
}
RELEASED = {Cut.REFUSED, Cut.REFUSES}
RETRYING = {"botocore", "stripe", "grpc", "redis", "kombu"}
"""What tries again by itself and shows only the last attempt: an earlier one may have been sent."""
NO_ANSWERS = [cut for cut in Cut if cut not in (Cut.BROKEN, Cut.REFUSES, Cut.SENDS_ON)]
SAYS_NOTHING = ("botocore", Cut.IN_ANSWER)
"""It takes what there is of such an answer for the whole."""
CASES = [one for one in itertools.product(HTTP, Cut) if one[1] is not Cut.SENDS_ON and one != SAYS_NOTHING]
CASES += itertools.product(OTHERS, NO_ANSWERS)


@pytest.mark.parametrize(("name", "cut"), CASES, ids=[f"{name}: {cut.value}" for name, cut in CASES])
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_only_a_connection_that_was_refused_and_an_answer_of_4xx_release_the_key(
    name: str, cut: Cut, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cut is Cut.SILENT:
        monkeypatch.setattr(sys.modules[__name__], "SECONDS", 0.4)
    call = (HTTP | OTHERS)[name]
    body = b"x" * (LARGE if cut is Cut.IN_REQUEST and name in HTTP else 5)
    with cutting(cut) as port:
        error = raised(lambda: call(port, body))
    is_open = cut not in RELEASED or (cut is Cut.REFUSED and name in RETRYING)
    assert isinstance(error, Exception)
    assert leaves_open(error) == is_open, repr(error)


def twice_by_requests(port: int, body: bytes) -> None:
    """Repeats what may have been sent, as its user has said."""
    with requests.Session() as session:
        retries = urllib3.Retry(1, allowed_methods=None)
        session.mount("http://", requests.adapters.HTTPAdapter(max_retries=retries))
        session.post(f"http://{HOST}:{port}/charges", body, timeout=SECONDS).raise_for_status()


TWICE: dict[str, Callable[[int, bytes], None]] = {
    "urllib3": by_urllib3_retries,
    "requests": twice_by_requests,
    "botocore": lambda port, body: by_botocore(port, body, attempts=2),
    "stripe": lambda port, body: by_stripe(port, body, retries=1),
    "redis": lambda port, body: by_redis(port, body, retries=1),
}
LAST = [*itertools.product(TWICE, [Cut.REFUSED]), ("botocore", Cut.REFUSES), ("requests", Cut.REFUSES)]


@pytest.mark.parametrize(("name", "last"), LAST, ids=[f"{name}: {last.value}" for name, last in LAST])
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_last_attempt_that_sent_nothing_does_not_speak_for_the_first(name: str, last: Cut) -> None:
    with cutting(Cut.BEFORE_ANSWER, last) as port:
        error = raised(lambda: TWICE[name](port, b"x"))
    assert leaves_open(error), repr(error)


async def check(answer: httpx.Response) -> None:
    """A hook sees an answer before it has a history."""
    if answer.is_error:
        answer.raise_for_status()


HOOKED = {"follow_redirects": True, "event_hooks": {"response": [check]}}
FOLLOWING: dict[str, Callable[[int, bytes], None]] = {
    "urllib": by_urllib,
    "requests": by_requests,
    "httpx": lambda port, body: by_httpx(port, body, follow=True),
    "httpx, async": lambda port, body: by_httpx_async(port, body, follow_redirects=True),
    "httpx, a hook": lambda port, body: by_httpx_async(port, body, **HOOKED),
    "httpx2": lambda port, body: by_httpx(port, body, httpx2, follow=True),
    "aiohttp": by_aiohttp,
    "aiohttp, checked later": lambda port, body: by_aiohttp(port, body, is_checked=False),
}
HOPS = list(itertools.product(FOLLOWING, [Cut.REFUSED, Cut.REFUSES]))


@pytest.mark.parametrize(("name", "hop"), HOPS, ids=[f"{name}: {hop.value}" for name, hop in HOPS])
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_becomes_of_a_redirect_does_not_speak_for_the_request_before_it(name: str, hop: Cut) -> None:
    with cutting(Cut.SENDS_ON, hop) as port:
        error = raised(lambda: FOLLOWING[name](port, b"x"))
    assert isinstance(error, Exception)
    assert leaves_open(error), repr(error)


@pytest.mark.parametrize("name", FOLLOWING)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_redirect_to_another_protocol_leaves_the_outcome_open(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATUSES, Cut.SENDS_ON, b"303 See Other\r\nLocation: other://a/1")
    with cutting(Cut.SENDS_ON) as port:
        error = raised(lambda: FOLLOWING[name](port, b"x"))
    assert leaves_open(error), repr(error)


def by_psycopg(url: str, statement: str) -> None:
    """A statement of its own transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        cut_now()
        connection.execute(statement.encode())


def by_psycopg_async(url: str, statement: str) -> None:
    """In an event loop."""

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            cut_now()
            await connection.execute(statement.encode())

    asyncio.run(main())


def by_asyncpg(url: str, statement: str) -> None:
    """In an event loop."""

    async def main() -> None:
        connection = await asyncpg.connect(url, ssl=False)
        try:
            cut_now()
            await connection.execute(statement)
        finally:
            connection.terminate()

    asyncio.run(main())


def by_sqlalchemy(url: str, statement: str) -> None:
    """Its errors wrap those of psycopg."""
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"), poolclass=NullPool)
    with engine.connect() as connection:
        cut_now()
        connection.exec_driver_sql(statement)


cut_now: Callable[[], None] = lambda: None  # noqa: E731 - each test has its own
DATABASES: dict[str, Callable[[str, str], None]] = {
    "psycopg": by_psycopg,
    "psycopg, async": by_psycopg_async,
    "asyncpg": by_asyncpg,
    "sqlalchemy": by_sqlalchemy,
}
ENDINGS: dict[str, tuple[str, bool]] = {
    "cut before": ("SELECT 1", True),
    "cut after": ("SELECT 1", True),
    "ended by the server": ("SELECT pg_terminate_backend(pg_backend_pid())", True),
    "a refusal": ("SELECT 1 / 0", False),
    "no server": ("", False),
}
"""What becomes of a statement, and whether its outcome is open."""


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", DATABASES)
def test_a_lost_connection_of_a_database_leaves_the_outcome_open_and_its_refusal_does_not(
    name: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, (statement, is_open) = fresh_schema(), ENDINGS[ending]
    parts = urlsplit(url)
    with Proxy(parts.port or 5_432) as proxy:
        cuts = {"cut before": proxy.cut_before, "cut after": proxy.cut_after}
        monkeypatch.setattr(sys.modules[__name__], "cut_now", cuts.get(ending, cut_now))
        port = 1 if ending == "no server" else proxy.port
        place = parts._replace(netloc=f"{parts.username}@{HOST}:{port}").geturl()
        error = raised(lambda: DATABASES[name](place, statement))
    assert leaves_open(error) == is_open, repr(error)


def over_soft_limit() -> None:
    """As Celery's and billiard's pools tell a task that its time is over."""
    before = signal.signal(signal.SIGUSR1, billiard.pool.soft_timeout_sighandler)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(25)
    finally:
        signal.signal(signal.SIGUSR1, before)


def over_pool_limit() -> None:
    """The call goes on in its thread."""
    over = threading.Event()
    with ThreadPool(1) as pool:
        try:
            pool.apply_async(over.wait, (25,)).get(timeout=0.01)
        finally:
            over.set()


def over_celery_limit() -> None:
    """The task goes on in its worker."""
    celery.Celery(backend="cache+memory://", broker="memory://").AsyncResult("x").get(timeout=0.01, interval=0.001)


def over_future_limit() -> None:
    """The call goes on in its thread."""
    over = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            pool.submit(over.wait, 25).result(timeout=0.01)
        finally:
            over.set()


def over_process_limit() -> None:
    """The process may have charged before it was killed."""
    subprocess.run([sys.executable, "-c", "import time; time.sleep(25)"], timeout=0.01, check=True)


def over_loop_limit() -> None:
    """A limit around a call of the network."""
    asyncio.run(asyncio.wait_for(asyncio.sleep(25), 0.01))


async def _with_timeout() -> None:
    async with asyncio.timeout(0.01):
        await asyncio.sleep(25)


LIMITS: dict[str, Callable[[], object]] = {
    "soft limit": over_soft_limit,
    "multiprocessing": over_pool_limit,
    "celery": over_celery_limit,
    "concurrent": over_future_limit,
    "subprocess": over_process_limit,
    "wait_for": over_loop_limit,
    "asyncio.timeout": lambda: asyncio.run(_with_timeout()),
    "anyio": lambda: anyio.run(_with_anyio),
}


async def _with_anyio() -> None:
    with anyio.fail_after(0.01):
        await anyio.sleep(25)


@pytest.mark.parametrize("name", LIMITS)
def test_a_time_limit_leaves_the_outcome_open(name: str) -> None:
    assert leaves_open(raised(LIMITS[name]))


def test_every_class_that_is_known_is_one_of_its_package() -> None:
    missing = list[str]()
    for package, name in _CLASSES:
        try:
            _import_all(package)
        except ImportError:
            assert package in ABSENT, package
            continue
        known = {kind.__qualname__ for kind in _below(BaseException) if kind.__module__.partition(".")[0] == package}
        if name not in known:
            missing.append(f"{package}.{name}")
    assert missing == []


ABSENT = {"psycopg2", "rq", "tenacity", "trio"}
"""Packages that the tests have no need for, or that have no wheel for each version."""


def _import_all(package: str) -> None:
    """Import a package, and the modules of it that have its errors."""
    found = importlib.import_module(package)
    for module in pkgutil.iter_modules(getattr(found, "__path__", []), f"{package}."):
        if re.search("exc|error|client|parsers|context|response|pool", module.name):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def _below(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _below(one)


def look_alike(package: str, name: str, **facts: object) -> Exception:
    """An exception of a package that is not installed."""
    kind = type(name, (Exception,), {"__module__": f"{package}.errors"})
    error: Exception = kind("x")
    error.__dict__.update(facts)
    return error


class BankError(Exception):
    """An error of the user's own."""

    def __init__(self, *args: object, **facts: object) -> None:
        super().__init__(*args)
        self.__dict__.update(facts)


def _raise(error: BaseException, cause: BaseException | None = None) -> Callable[[], None]:
    def call() -> None:
        raise error from cause

    return call


def _in_handler_of(error: BaseException, is_hidden: bool) -> None:
    try:
        raise error
    except BaseException:  # noqa: BLE001 - any
        if is_hidden:
            raise BankError("bank") from None
        raise BankError("bank")  # noqa: B904 - that is the case


WRAPPED: dict[str, tuple[Callable[[], None], bool]] = {
    "its cause": (_raise(BankError("bank"), TimeoutError()), True),
    "its cause's cause": (_raise(BankError("bank"), BankError(TimeoutError())), True),
    "its context": (lambda: _in_handler_of(TimeoutError(), is_hidden=False), True),
    "its context, from None": (lambda: _in_handler_of(TimeoutError(), is_hidden=True), True),
    "a member of a group": (_raise(ExceptionGroup("a", [ValueError(), TimeoutError()])), True),
    "a member of a group of a group": (_raise(ExceptionGroup("a", [ExceptionGroup("b", [EOFError()])])), True),
    "a group of others": (_raise(ExceptionGroup("a", [ValueError(), KeyError()])), False),
    "a group with a cancellation": (_raise(BaseExceptionGroup("a", [ValueError(), asyncio.CancelledError()])), True),
    "an argument": (_raise(BankError("bank", TimeoutError())), True),
    "an attribute": (_raise(BankError("bank", original=TimeoutError())), True),
    "an attribute that is another": (_raise(BankError("bank", original=ValueError())), False),
    "itself": (_raise(BankError("bank")), False),
    "a refused connection as its cause": (_raise(BankError("bank"), ConnectionRefusedError(111, "refused")), False),
    "both": (_raise(BankError(TimeoutError()), ConnectionRefusedError(111, "refused")), True),
    "a soft limit of rq": (_raise(look_alike("rq", "BaseTimeoutException")), True),
    "tenacity": (_raise(look_alike("tenacity", "RetryError")), True),
    "trio": (_raise(look_alike("trio", "TooSlowError")), True),
    "psycopg2, no code": (_raise(look_alike("psycopg2", "OperationalError", pgcode=None)), True),
    "psycopg2, ended": (_raise(look_alike("psycopg2", "OperationalError", pgcode="57P01")), True),
    "psycopg2, a refusal": (_raise(look_alike("psycopg2", "OperationalError", pgcode="55P03")), False),
    "httpx2": (_raise(httpx2.ReadTimeout("x")), True),
    "httpx2, nothing was sent": (_raise(httpx2.ConnectError("x")), False),
    "httpcore2": (_raise(BankError(httpcore2.ReadTimeout("x"))), True),
    "urllib3, unpickled": (_raise(look_alike("urllib3", "MaxRetryError")), True),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_an_exception_that_wraps_an_open_one_is_open(name: str) -> None:
    call, is_open = WRAPPED[name]
    assert leaves_open(raised(call)) == is_open


OPTIONS: dict[str, tuple[dict[str, Any], Exception, bool]] = {
    "releases wins over the table": ({"releases": (TimeoutError,)}, TimeoutError(), False),
    "releases wins over unknown": ({"releases": (ValueError,), "unknown": (ValueError,)}, ValueError(), False),
    "releases takes subclasses": ({"releases": (OSError,)}, TimeoutError(), False),
    "releases of another": ({"releases": (KeyError,)}, TimeoutError(), True),
    "unknown": ({"unknown": (BankError,)}, BankError("x"), True),
    "unknown, wrapped": ({"unknown": (BankError,)}, ValueError(BankError("x")), True),
    "unknown of another": ({"unknown": (KeyError,)}, BankError("x"), False),
    "none": ({}, BankError("x"), False),
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_options_of_a_function_come_before_the_table(name: str, is_async: bool) -> None:
    options, error, is_open = OPTIONS[name]
    store, runs = Once.memory(), list[str]()

    def fail(key: str) -> None:
        runs.append(key)
        raise error

    async def fail_async(key: str) -> None:
        fail(key)

    charge: Any = store.once(key="key", **options)(fail_async if is_async else fail)

    def call() -> object:
        return asyncio.run(charge("a")) if is_async else charge("a")

    first, second = raised(call), raised(call)
    assert first is error
    assert isinstance(second, OutcomeUnknown) == is_open
    assert len(runs) == (1 if is_open else 2)
    store.close()


def test_an_exception_that_was_handled_before_the_call_is_not_its_own() -> None:
    store = Once.memory()

    @store.once(key="key")
    def fail(key: str) -> None:
        raise ValueError(key)

    for _ in range(2):
        try:
            raise TimeoutError
        except TimeoutError:
            assert type(raised(lambda: fail("a"))) is ValueError
    store.close()

"""`semel proxy`: an idempotency proxy in front of any HTTP service."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from semel.cli.output import printable
from semel.once import OnceError
from semel.once.errors import InvalidKey
from semel.once.functions import Once
from semel.once.units import byte_count, seconds
from semel.proxy.process import ProxyListenError, run_proxy
from semel.proxy.settings import KEPT_HEADERS, POLICIES, ProxySettings, RouteError, UpstreamError, route_of, upstream_of

F = TypeVar("F", bound=Callable[..., Any])


class _Length(click.ParamType[float]):
    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds of a text such as 30s."""
        try:
            found = seconds(value)
        except InvalidKey as error:
            self.fail(str(error), param, ctx)
        if found <= 0:
            self.fail(f"{value!r} is too short: write at least '1ms'.", param, ctx)
        return found


class _Bytes(click.ParamType[int]):
    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The bytes of a text such as 1MiB."""
        try:
            return byte_count(value)
        except InvalidKey as error:
            self.fail(str(error), param, ctx)


def _length(flag: str, default: str, about: str) -> Callable[[F], F]:
    return click.option(flag, type=_Length(), default=default, metavar="TIME", help=f"{about}  [{default}]")


def _size(flag: str, about: str) -> Callable[[F], F]:
    return click.option(flag, type=_Bytes(), default="1MiB", metavar="SIZE", help=f"{about}  [1MiB]")


@click.command(context_settings={"max_content_width": 120})
@click.option(
    "--upstream",
    required=True,
    metavar="URL",
    help="URL of the service behind the proxy, such as http://127.0.0.1:8000.",
)
@click.option(
    "--store",
    "place",
    required=True,
    metavar="PLACE",
    help="Store of keys and answers: a file, a postgresql:// URL or a Semel server.",
)
@click.option(
    "--route",
    "routes",
    multiple=True,
    required=True,
    metavar="ROUTE",
    help="Method and path that keys apply to, as in 'POST /charges [refuse|retry]'.",
)
@click.option(
    "--on-crash",
    type=click.Choice(POLICIES),
    default="refuse",
    help="After a crash: refuse or retry requests of unknown outcome.  [refuse]",
)
@click.option("--require", "is_key_required", is_flag=True, help="Answer 400 to requests of a route without a key.")
@click.option(
    "--scope-header",
    "scope_headers",
    multiple=True,
    metavar="NAME",
    help="Header whose value separates the keys of callers.  [Authorization]",
)
@click.option(
    "--scope",
    type=click.Choice(["header", "none"]),
    default="header",
    help="Scope of keys: one for each --scope-header value, or one for all.  [header]",
)
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Address to listen on.  [127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8789,
    metavar="PORT",
    help="TCP port to listen on; 0 takes a free port.  [8789]",
)
@_length("--keep", "24h", "Keep an answer for replays for this time.")
@_length("--lease", "60s", "Lease of a running request; after a crash it counts as running for this time.")
@_length("--wait", "10s", "Longest wait for a running request with the same key.")
@_length("--connect-timeout", "10s", "Time limit to connect to the upstream.")
@_length("--timeout", "60s", "Time limit of the upstream for the whole answer to a request with a key.")
@_length("--idle-timeout", "60s", "Close a connection that is idle for this time.")
@_length("--stop-timeout", "30s", "Time for running requests to end at shutdown.")
@_size("--max-body", "Largest body of a request with a key, in bytes.")
@_size("--max-answer", "Largest answer that is stored, in bytes.")
@click.option(
    "--max-requests",
    type=click.IntRange(1, 65_536),
    default=256,
    metavar="N",
    help="Maximum concurrent requests.  [256]",
)
@click.option(
    "--keep-header",
    "kept",
    multiple=True,
    metavar="NAME",
    help="Response header that a replay repeats; may be repeated.",
)
@click.option(
    "--trust-forwarded", "is_forwarded_trusted", is_flag=True, help="Trust the X-Forwarded-* headers of the client."
)
@click.option(
    "--rewrite-host", "is_host_rewritten", is_flag=True, help="Send the upstream's Host header instead of the client's."
)
@click.option("--quiet", is_flag=True, help="Do not log requests to standard error.")
def proxy(
    upstream: str,
    place: str,
    routes: tuple[str, ...],
    on_crash: Any,
    scope_headers: tuple[str, ...],
    scope: str,
    host: str,
    port: int,
    timeout: float,
    kept: tuple[str, ...],
    quiet: bool,
    **limits: Any,
) -> None:
    """Let requests with an Idempotency-Key take effect once, in front of any service.

    The token for a Semel server is read from SEMEL_TOKEN.
    """
    if scope == "none" and scope_headers:
        raise click.UsageError("--scope none and --scope-header contradict each other: give one of them.")
    names = scope_headers or ("authorization",)
    try:
        settings = ProxySettings(
            upstream=upstream_of(upstream),
            routes=tuple(route_of(text, on_crash) for text in routes),
            scope_headers=names if scope == "header" else (),
            answer_timeout=timeout,
            kept_headers=(*KEPT_HEADERS, *kept),
            **limits,
        )
        _tell_on_stderr(logging.WARNING if quiet else logging.INFO)
        _run(settings, place, (host, port))
    except (RouteError, UpstreamError, ProxyListenError, OnceError) as error:
        raise click.ClickException(printable(str(error))) from error
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise click.ClickException("PostgreSQL needs the driver psycopg: install semel[postgres].") from error


def _run(settings: ProxySettings, place: str, address: tuple[str, int]) -> None:
    store = Once(place)
    shown = printable(place) if "://" not in place else f"a {place.partition('://')[0]}:// store"

    def announce(url: str) -> None:
        click.echo(f"Semel proxies {url} to {settings.upstream}; receipts in {shown}.")
        sys.stdout.flush()

    try:
        run_proxy(settings, store, address, announce)
    finally:
        store.close()


def _tell_on_stderr(level: int) -> None:
    """Log each request and each failure to standard error; of other libraries only errors."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.ERROR, handlers=[handler])
    logging.getLogger("semel.proxy").setLevel(level)

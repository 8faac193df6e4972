"""`semel proxy`: an idempotency proxy in front of any HTTP service."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import click

from semel.cli.command import Opt, OptionSet, ParsedType, command
from semel.cli.output import printable
from semel.once import OnceError
from semel.once.functions import Once
from semel.once.units import byte_count
from semel.proxy.app import Proxy, checked
from semel.proxy.process import ProxyListenError, run_proxy
from semel.proxy.settings import (
    MOST_REQUESTS,
    OnCrash,
    ProxySettings,
    RouteError,
    UpstreamError,
    length_of,
    route_of,
    upstream_of,
)


def _time(about: str, default: str) -> Opt:
    return Opt(f"{about}  [{default}]", "", "TIME", ParsedType("length", length_of))


def _size(about: str) -> Opt:
    return Opt(f"{about}  [1MiB]", "", "SIZE", ParsedType("bytes", byte_count))


Names = tuple[str, ...]
ROUTE_HELP = "Method and path that keys apply to, as in 'POST /charges [refuse|retry]'."
SCOPE_HELP = "Scope of keys: one for each --scope-header value, or one for all.  [header]"
LEASE_HELP = "Lease of a running request; after a crash it counts as running for this time."
TIMEOUT_HELP = "Time limit of the upstream for the whole answer to a request with a key."


@dataclass(frozen=True)
class ProxyOptions(OptionSet):
    """The options of the proxy. One with the name of a setting is that setting."""

    upstream: Annotated[str, Opt("URL of the service behind the proxy, such as http://127.0.0.1:8000.", metavar="URL")]
    place: Annotated[str, Opt("Store of keys and answers: a file or a postgresql:// URL.", "--store", "PLACE")]
    routes: Annotated[Names, Opt(ROUTE_HELP, "--route", "ROUTE", is_required=True)]
    on_crash: Annotated[OnCrash, Opt("After a crash: refuse or retry requests of unknown outcome.  [refuse]")] = (
        "refuse"
    )
    is_key_required: Annotated[bool, Opt("Answer 400 to requests of a route without a key.", "--require")] = False
    scope_headers: Annotated[
        Names, Opt("Header whose value separates the keys of callers.  [Authorization]", "--scope-header", "NAME")
    ] = ()
    scope: Annotated[Literal["header", "none"], Opt(SCOPE_HELP)] = "header"
    host: Annotated[str, Opt("Address to listen on.  [127.0.0.1]", "", "HOST")] = "127.0.0.1"
    port: Annotated[
        int, Opt("TCP port to listen on; 0 takes a free port.  [8789]", "", "PORT", click.IntRange(0, 65_535))
    ] = 8789
    keep: Annotated[Any, _time("Keep an answer for replays for this time.", "24h")] = "24h"
    lease: Annotated[Any, _time(LEASE_HELP, "60s")] = "60s"
    wait: Annotated[Any, _time("Longest wait for a running request with the same key.", "10s")] = "10s"
    connect_timeout: Annotated[Any, _time("Time limit to connect to the upstream.", "10s")] = "10s"
    timeout: Annotated[Any, _time(TIMEOUT_HELP, "60s")] = "60s"
    idle_timeout: Annotated[Any, _time("Close a connection that is idle for this time.", "60s")] = "60s"
    stop_timeout: Annotated[Any, _time("Time for running requests to end at shutdown.", "30s")] = "30s"
    max_body: Annotated[Any, _size("Largest body of a request with a key, in bytes.")] = "1MiB"
    max_answer: Annotated[Any, _size("Largest answer that is stored, in bytes.")] = "1MiB"
    max_requests: Annotated[
        int, Opt("Maximum concurrent requests.  [256]", "", "N", click.IntRange(1, MOST_REQUESTS))
    ] = 256
    is_forwarded_trusted: Annotated[
        bool, Opt("Trust the X-Forwarded-* headers of the client.", "--trust-forwarded")
    ] = False
    is_host_rewritten: Annotated[
        bool, Opt("Send the upstream's Host header instead of the client's.", "--rewrite-host")
    ] = False
    quiet: Annotated[bool, Opt("Do not log requests to standard error.")] = False

    def settings(self) -> ProxySettings:
        """The settings. Raises `RouteError` or `UpstreamError`."""
        if self.scope == "none" and self.scope_headers:
            raise click.UsageError("--scope none and --scope-header contradict each other: give one of them.")
        names = {field.name for field in fields(ProxySettings)}
        given = {name: value for name, value in vars(self).items() if name in names}
        given["upstream"] = upstream_of(self.upstream)
        given["routes"] = tuple(route_of(text, self.on_crash) for text in self.routes)
        given["scope_headers"] = (self.scope_headers or ("authorization",)) if self.scope == "header" else ()
        return ProxySettings(**given, answer_timeout=self.timeout)


@command(context_settings={"max_content_width": 120})
def proxy(options: ProxyOptions) -> None:
    """Let requests with an Idempotency-Key take effect once, in front of any service."""
    try:
        settings = options.settings()
        _tell_on_stderr(logging.WARNING if options.quiet else logging.INFO)
        _run(settings, options.place, (options.host, options.port))
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
        checked(store)
        run_proxy(settings, Proxy(settings, store), address, announce)
    finally:
        store.close()


def _tell_on_stderr(level: int) -> None:
    """Log each request and each failure to standard error; of other libraries only errors."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=logging.ERROR, handlers=[handler])
    logging.getLogger("semel.proxy").setLevel(level)

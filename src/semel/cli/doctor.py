"""`semel doctor`: checks whether a server can run here and answers, and says what to do if not."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple

import click

from semel.cli.command import Json, Opt, command
from semel.cli.output import printable
from semel.client import Client
from semel.client.errors import AccessError, NoAnswerError, RefusedError, SemelError
from semel.kernel.namespace import DEFAULT, check_name, url_within
from semel.server.ops import self_check
from semel.server.ops.self_check import DoctorCheck, lock_holder, ok, problem
from semel.server.ops.server_process import found_folder


class Sign(NamedTuple):
    """A metric that tells of trouble above a bound."""

    bound: float
    found: str
    advice: str


UPKEEP = {
    "semel_store_sweep_lag_seconds": Sign(
        600.0,
        "expired rows are not freed for {:.0f} s",
        "Look at the log of the server for what keeps it from its upkeep: a store that fails, or too much load.",
    ),
    "semel_engine_oldest_write_seconds": Sign(
        10.0,
        "a write waits for its commit for {:.0f} s",
        "Look at the disk or the database: is it full, or does it hang?",
    ),
    "semel_store_replica_lag_seconds": Sign(
        60.0, "a replica of the database is {:.0f} s behind", "Look whether it runs, and whether its replay is paused."
    ),
    "semel_audit_lost_lines_total": Sign(
        0.0, "{:.0f} lines of the audit log were lost", "Look at the disk of its folder: it did not keep up."
    ),
}
"""By the name of the metric."""


@command()
def doctor(
    client: Client,
    data: Annotated[
        Path | None, Opt("Data folder; by default that of the server that runs here, or data.", envvar="SEMEL_DATA")
    ] = None,
    store: Annotated[str, Opt("Store URL, instead of the data folder.", metavar="URL", envvar="SEMEL_STORE")] = "",
    as_json: Json = False,
) -> None:
    """Check this machine and the server.

    Says whether a server can run here and answers, what each surface holds, and what is stuck. Prints what to do, and
    exits with 1 if there is a problem. Nothing is changed or left behind.
    """
    checks = []
    for check in _rounds(client, data, store):
        checks.append(check)
        if not as_json:
            _show(check)
    problems = sum(not check.is_ok for check in checks)
    if as_json:
        click.echo(json.dumps({"ok": problems == 0, "checks": [_facts(check) for check in checks]}))
    else:
        click.echo(_summary(problems))
    sys.exit(1 if problems else 0)


def _rounds(client: Client, data: Path | None, store: str) -> Iterator[DoctorCheck]:
    yield from self_check.check_machine()
    yield self_check.check_settings(os.environ)
    if store:
        yield from self_check.check_store(store)
    else:
        data, how = found_folder() if data is None else (data, "")
        for check in self_check.check_folder(data):
            yield check._replace(found=f"{check.found} ({how})") if how and check.name == "data folder" else check
    yield from check_server(client)
    # SQLite leaves files in a folder that no server has open, so only one that is in use is looked into.
    if store or lock_holder(data or Path()) is not None:
        url = store or f"sqlite:{data}"
        yield from _surfaces(url)
        for name in _namespaces(url):
            for check in _namespace_rounds(client, url, name):
                yield check._replace(namespace=name)


def _namespaces(url: str) -> Sequence[str]:
    """The namespaces of a store besides the default one; of folders, those that a server has open."""
    try:
        from semel.store.open import namespaces_at  # noqa: PLC0415 - its libraries may be missing
        from semel.store.protocol import StoreError  # noqa: PLC0415
    except ImportError:
        return ()
    try:
        names = namespaces_at(url)
    except StoreError:
        return ()  # the checks above have said so
    return [
        name
        for name in names
        if not url.startswith("sqlite:") or lock_holder(Path(url_within(url, name).partition(":")[2])) is not None
    ]


def _namespace_rounds(client: Client, url: str, name: str) -> Iterator[DoctorCheck]:
    """What is said of the default namespace, of another one: whether it accepts writes, and what its surfaces hold."""
    with within(client, name) as one:
        try:
            one.server.version()
        except SemelError:
            yield ok("server", printable(f"the server at {client.access.url} does not answer for it"))
        else:
            yield from _check_readiness(one)
            yield _check_credential(one)
    yield from _surfaces(url_within(url, name))


@contextmanager
def within(client: Client, namespace: str) -> Iterator[Client]:
    """A client of one namespace of the same server."""
    if check_name(namespace) == DEFAULT:
        yield client
        return
    access = client.access
    with Client(f"{access.url.rstrip('/')}/ns/{namespace}", token=access.token or "", tls=access.tls) as one:
        yield one


def _surfaces(url: str) -> Iterator[DoctorCheck]:
    try:
        from semel.server.offline_outlook import check_surfaces  # noqa: PLC0415 - its libraries may be missing
        from semel.server.settings_loader import SettingsError, load_settings, make_settings  # noqa: PLC0415
    except ImportError:
        return  # the checks above have said so
    try:
        config = os.environ.get("SEMEL_CONFIG")
        settings = load_settings({}, os.environ, Path(config) if config else None)
    except SettingsError:
        settings = make_settings()  # the limits are then the defaults
    for check in check_surfaces(url, settings):
        yield check._replace(found=printable(check.found))


def check_server(client: Client) -> Iterator[DoctorCheck]:
    """The checks of the server; if it does not answer, only that problem."""
    url = client.access.url
    try:
        yield ok("server", printable(f"version {client.server.version()} at {url}"))
    except NoAnswerError as error:
        advice = "Start one with `semel serve`, or name another with --url or SEMEL_URL."
        yield problem("server", printable(f"no server answers at {url} ({error.reason})"), advice)
        return
    except SemelError:
        yield problem("server", f"the server at {url} is not Semel", "Check --url or SEMEL_URL.")
        return
    yield from _check_readiness(client)
    yield _check_credential(client)
    yield from _check_upkeep(client)


def _check_readiness(client: Client) -> Iterator[DoctorCheck]:
    """One problem for each reason that the server gives."""
    try:
        client.server.ready()
    except SemelError as error:
        reasons = error.facts.get("reasons") if isinstance(error, RefusedError) else None
        for reason in reasons if isinstance(reasons, list) else ():
            yield problem("readiness", printable(str(reason.get("found"))), printable(str(reason.get("advice"))))
        if not reasons:
            yield problem("readiness", "it accepts no writes now", "Wait for its restart, or read its log.")
    else:
        yield ok("readiness", "it accepts writes")


def _check_upkeep(client: Client) -> Iterator[DoctorCheck]:
    """What the metrics of a server tell of work that it does not get done; nothing if they cannot be read."""
    try:
        metrics = client.server.metrics()
    except SemelError:
        return  # the credential, or the readiness, is a problem that was told
    found = [
        problem("upkeep", sign.found.format(value), sign.advice)
        for name, sign in UPKEEP.items()
        if (value := metrics.get(name, metrics.get(f"{name}{{namespace={DEFAULT}}}", 0.0))) > sign.bound
    ]
    yield from found or [ok("upkeep", "expired rows are freed, and no write waits for long")]


def _check_credential(client: Client) -> DoctorCheck:
    try:
        client.streams.list(limit=1)
    except AccessError as error:
        if error.status == 401:
            advice = "Put a token into SEMEL_TOKEN, or name its file: --token-file."
            return problem("credential", printable(str(error)), advice)
    except NoAnswerError as error:
        return problem("credential", printable(str(error)), "Run this again.")
    except SemelError:
        pass  # another refusal: the credential was accepted
    return ok("credential", "accepted")


def _show(check: DoctorCheck) -> None:
    mark = click.style("ok     ", fg="green") if check.is_ok else click.style("problem", fg="red", bold=True)
    about = f"[{check.namespace}] " if check.namespace else ""
    click.echo(f"{mark}  {check.name:<11}  {about}{check.found}")
    if check.advice:
        click.echo(f"{'':22}{check.advice}")


def _facts(check: DoctorCheck) -> dict[str, object]:
    facts = {"name": check.name, "ok": check.is_ok, "found": check.found, "advice": check.advice or None}
    return facts | {"namespace": check.namespace} if check.namespace else facts


def _summary(problems: int) -> str:
    if problems == 0:
        return "No problems found."
    return "There is 1 problem." if problems == 1 else f"There are {problems} problems."

"""For every test: a machine may stand still for a while, and that is no fault of what is tested."""

from __future__ import annotations

import gc
import inspect
import os
import ssl
import sys
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings

from tests.harness.guardian import guard
from tests.harness.warm_start import enable
from tests.nightly import APART, ROOT

PATIENCE_SECONDS = 60.0
APART_PATHS = frozenset(ROOT / one for some in APART.values() for one in some)
LONGEST = (
    "docs/test_pages",
    "store/postgres/test_nodes",
    "client/test_deltas_live",
    "client/events/test_kills",
    "once/compat/test_servers",
    "once/test_transaction_rows",
    "streams/promises/test_protocol",
    "streams/promises/test_retention",
    "check/test_damages",
    "store/postgres/test_refusals",
    "law/test_law",
    "once/test_transactions",
    "streams/promises/test_idempotency_key",
    "testing/test_assert_idempotent",
    "cli/test_streams",
    "check/test_every_column",
    "jobs/model/test_model",
    "engine/test_model",
    "events/model/test_model",
    "kernel/test_json_outline",
    "deltas/model/test_model",
    "deltas/promises/test_scenarios_repairs",
    "ledger/promises/test_rows",
    "jobs/promises/test_list_pages",
)
"""The files that take longest. They come first: one that begins last keeps one worker busy, and the others idle."""


# Compiled modules are kept, whatever the shell says: each worker imports 1,600 modules of the tests, and the tests
# start the command some thousand times.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_configure() -> None:
    """Wait longer for answers than the five seconds that httpx waits when nothing is said, and time no examples."""
    # One object is the default of all its calls; there is no other way to say it once.
    usual = inspect.signature(httpx.get).parameters["timeout"].default
    usual.connect = usual.read = usual.write = usual.pool = PATIENCE_SECONDS
    share_tls_context()
    guard()
    enable()
    # Processes are started by threads beside gRPC, whose handlers of a fork would get in the way.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")


def share_tls_context() -> None:
    """Load the certificates of the public authorities once: every client of httpx does it anew, in 20 ms of CPU.

    A test that names its own certificates gets a context of its own, as before.
    """
    make = httpx.create_ssl_context
    shared: dict[tuple[str | None, ...], ssl.SSLContext] = {}

    def create_ssl_context(
        verify: ssl.SSLContext | str | bool = True,
        cert: str | tuple[str, str] | tuple[str, str, str] | None = None,
        trust_env: bool = True,
    ) -> ssl.SSLContext:
        if verify is not True or cert is not None:
            return make(verify=verify, cert=cert, trust_env=trust_env)
        named = tuple(os.environ.get(name) if trust_env else None for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))
        if named not in shared:
            shared[named] = make(trust_env=trust_env)
        return shared[named]

    httpx._transports.default.create_ssl_context = create_ssl_context  # type: ignore[attr-defined]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what `make nightly` runs, unless it is named."""
    if collection_path not in APART_PATHS:
        return None
    named = [(config.invocation_params.dir / one.partition("::")[0]).resolve() for one in config.args]
    return None if any(one == collection_path or collection_path in one.parents for one in named) else True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, and everything else as it was."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition(".py")[0].removeprefix("tests/"), len(places)))


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()

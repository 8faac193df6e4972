"""A bundle without a server: from the data folder, the store, and the settings of this machine.

Nothing is migrated or changed. Whatever cannot be looked at is told in its place, and the rest is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click

from semel.cli.diagnose.command import told
from semel.cli.doctor.check import Check, ok, problem
from semel.cli.doctor.folder import check_folder
from semel.cli.doctor.machine import check_clock, check_python, check_settings, check_speedups, check_sqlite
from semel.cli.doctor.store import check_store
from semel.contracts.schema import MIGRATIONS, TABLES
from semel.engine.reading import Reading
from semel.engine.soft import SoftChanges
from semel.kernel.clock import Now
from semel.server import bundle
from semel.server.bundle import Jobs
from semel.server.settings import ServerSettings
from semel.server.settings_loader import SettingsError, load_settings
from semel.server.world import SystemWorld
from semel.store.migrations import pending
from semel.store.open import look_at, open_store, shown
from semel.store.protocol import StoreBusyError, StoreError


def offline(data: str | None, store: str | None, config: Path | None, logs: tuple[Path, ...]) -> tuple[str, bytes]:
    """The name and the content of a bundle."""
    now_ms = SystemWorld().wall_ms()
    settings, failure = _settings(data, store, config)
    if not store and not Path(settings.data).is_dir():
        raise click.ClickException(f"There is no folder {settings.data}.")
    checks = list(_rounds(settings, store))
    jobs: Jobs | None = None
    try:
        jobs = _look(settings.store_url)
        checks.append(ok("rows", "the jobs were looked at"))
    except StoreError as error:
        checks.append(problem("rows", str(error), "The bundle holds everything but the jobs."))
    parts = {
        "about.json": bundle.about(now_ms, "the data, without a server"),
        "configuration.json": bundle.as_json({"error": failure}) if failure else bundle.configuration(settings),
        "environment.json": bundle.environment(os.environ),
        "doctor.json": told(checks).encode(),
        "store.json": bundle.store_facts(settings, None if jobs is None else jobs.census),
        **bundle.logs(Path(settings.data) / "logs"),
        **{f"logs/{number}_{path.name}": bundle.tail(path) for number, path in enumerate(logs[: bundle.MAX_LOGS])},
    }
    if jobs is not None:
        parts["jobs.json"] = jobs.facts()
        parts["self_check.json"] = bundle.as_json([jobs.check()])
    return bundle.file_name(now_ms), bundle.packed(parts, now_ms, bundle.secrets_of(settings, os.environ))


def _settings(data: str | None, store: str | None, config: Path | None) -> tuple[ServerSettings, str]:
    """What a server would run with; with settings that it refuses, why, and the defaults."""
    try:
        # This listens nowhere: what a server must know before it may listen is not asked for.
        return load_settings({"data": data, "store": store, "host": "127.0.0.1"}, os.environ, config), ""
    except SettingsError as error:
        return ServerSettings(data=data or "data", store=store or ""), str(error)


def _rounds(settings: ServerSettings, store: str | None) -> Iterator[Check]:
    """What the doctor says of this machine and of the data."""
    yield check_python()
    yield check_sqlite()
    yield check_speedups()
    yield check_clock()
    yield check_settings(os.environ)
    yield from check_store(store) if store else check_folder(Path(settings.data))


def _look(url: str) -> Jobs:
    """The jobs in a store; `StoreError` when it is not there, not of this version, or a server's own."""
    version = look_at(url, ()).version
    if version == 0:
        raise StoreError(f"There is no data in {shown(url)}.")
    if pending(MIGRATIONS, version):
        raise StoreError(f"{shown(url)} is of the older schema version {version}; nothing was changed.")
    try:
        with closing(open_store(url, TABLES, MIGRATIONS, SystemWorld().wall_ms)) as store, store.read() as snapshot:
            now_ms = snapshot.now_ms
            return Jobs(Reading(snapshot, SoftChanges(), Now(now_ms, now_ms, now_ms, now_ms)))
    except StoreBusyError as error:
        raise StoreError(f"{error} Ask it: semel diagnose --url URL.") from error

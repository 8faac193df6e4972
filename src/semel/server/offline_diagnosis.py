"""A bundle without a server: from the data folder, the store, and the settings of this machine.

Nothing is migrated or changed. A part that cannot be read has its error instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from semel.engine.clock import SystemWorld
from semel.kernel.namespace import DEFAULT
from semel.server.offline_store import opened, reading_of, store_settings
from semel.server.ops import diagnosis_bundle
from semel.server.ops.diagnosis_bundle import SurfaceDiagnosis
from semel.server.ops.self_check import (
    DoctorCheck,
    as_text,
    check_folder,
    check_machine,
    check_settings,
    check_store,
    ok,
    problem,
)
from semel.server.settings import ServerSettings
from semel.server.settings_loader import SettingsError, make_settings
from semel.store.migrations import pending
from semel.store.open import inspect_store, shown
from semel.store.protocol import StoreBusyError, StoreError
from semel.surfaces.registry import SURFACES
from semel.surfaces.schema import MIGRATIONS


def offline(
    data: str | None, store: str | None, config: Path | None, logs: tuple[Path, ...], namespace: str = DEFAULT
) -> tuple[str, bytes]:
    """The name and the content of a bundle. Raises `StoreError` if there is no data folder."""
    now_ms = SystemWorld().wall_ms()
    settings, failure = _settings(data, store, config, namespace)
    if not store and not settings.folder.is_dir():
        raise StoreError(f"There is no folder {settings.folder}.")
    checks = list(_rounds(settings, settings.store_url if store else None))
    found: list[SurfaceDiagnosis] = []
    try:
        found = _look(settings.store_url)
        checks.append(ok("rows", "the jobs were looked at"))
    except StoreError as error:
        checks.append(problem("rows", str(error), "The bundle holds everything but the jobs."))
    parts = {
        "about.json": diagnosis_bundle.about(now_ms, "the data, without a server", namespace),
        "configuration.json": diagnosis_bundle.as_json({"error": failure})
        if failure
        else diagnosis_bundle.configuration(settings),
        "environment.json": diagnosis_bundle.environment(os.environ),
        "doctor.json": as_text(checks).encode(),
        "store.json": diagnosis_bundle.store_facts(settings, found),
        **diagnosis_bundle.logs(settings.logs),
        **{
            f"logs/{number}_{path.name}": diagnosis_bundle.tail(path)
            for number, path in enumerate(logs[: diagnosis_bundle.MAX_LOGS])
        },
    }
    if found:
        parts |= diagnosis_bundle.surface_parts(found)
        parts["self_check.json"] = diagnosis_bundle.as_json([one.check() for one in found])
    return diagnosis_bundle.file_name(now_ms), diagnosis_bundle.packed(
        parts, now_ms, diagnosis_bundle.secrets_of(settings, os.environ)
    )


def _settings(data: str | None, store: str | None, config: Path | None, namespace: str) -> tuple[ServerSettings, str]:
    """The settings of a server in a namespace; if they are invalid, the reason and the defaults."""
    try:
        return store_settings(config, store, data, namespace), ""
    except SettingsError as error:
        return make_settings(data=data or "data", store=store or "").within(namespace), str(error)


def _rounds(settings: ServerSettings, store: str | None) -> Iterator[DoctorCheck]:
    """The doctor's checks of this machine and the data."""
    yield from check_machine()
    yield check_settings(os.environ)
    yield from check_store(store) if store else check_folder(settings.folder)


def _look(url: str) -> list[SurfaceDiagnosis]:
    """The surfaces' diagnosis of a store. Raises `StoreError` if it is missing, of another version, or in use."""
    version = inspect_store(url, ()).version
    if version == 0:
        raise StoreError(f"There is no data in {shown(url)}.")
    if pending(MIGRATIONS, version, shown(url)):
        raise StoreError(f"{shown(url)} is of the older schema version {version}; nothing was changed.")
    try:
        with closing(opened(url)) as store, store.read() as snapshot:
            reading = reading_of(snapshot)
            return [row.diagnose(reading) for row in SURFACES if row.diagnose is not None]
    except StoreBusyError as error:
        raise StoreError(f"{error} Ask the server: semel diagnose --url URL.") from error

"""What every surface of a store says at a glance, read beside a running server or without one; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator

from semel.server.offline_store import reading_of, snapshot_of
from semel.server.ops.self_check import DoctorCheck, ok, problem
from semel.server.settings import ServerSettings
from semel.store.open import inspect_store
from semel.store.protocol import StoreError
from semel.surfaces.registry import SURFACES


def check_surfaces(url: str, settings: ServerSettings) -> Iterator[DoctorCheck]:
    """One check for each surface, and one more for each thing in it that does not move by itself, or is near a limit of
    these settings.
    """
    try:
        if inspect_store(url, ()).version == 0:
            return
        with snapshot_of(url) as snapshot:
            reading = reading_of(snapshot)
            found = [(row.name, row.outlook(reading, settings)) for row in SURFACES if row.outlook is not None]
    except StoreError as error:
        yield problem("surfaces", str(error), "Run `semel check`, which says more.")
        return
    for name, outlook in found:
        yield ok(name, outlook.counts)
        for trouble in outlook.troubles:
            yield problem(name, trouble.found, trouble.advice)

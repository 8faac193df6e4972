"""The store of a server, opened read-only beside it by its settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from semel.cli.output import printable
from semel.engine.clock import SystemWorld
from semel.engine.reading import Reading
from semel.engine.soft_changes import SoftChanges
from semel.kernel.clock import Now
from semel.server.settings_loader import SettingsError, load_settings
from semel.store.open import open_read_only
from semel.store.protocol import StoreError
from semel.surfaces.deltas.tables import DELTA_GATEWAY, gateway_key
from semel.surfaces.deltas.tables import TABLES as DELTA_TABLES
from semel.surfaces.epoch import TABLES as EPOCH_TABLES
from semel.surfaces.schema import MIGRATIONS


@contextmanager
def read_only_view(config: Path | None, store: str | None, data: str | None) -> Iterator[Reading]:
    """A snapshot of the store that a server with these settings would use. Errors become errors of the command."""
    try:
        # This command does not listen, so settings that only a listening server needs are not required.
        settings = load_settings({"store": store, "data": data, "host": "127.0.0.1"}, os.environ, config)
        tables = (*DELTA_TABLES, *EPOCH_TABLES)
        with open_read_only(settings.store_url, tables, MIGRATIONS, SystemWorld().wall_ms) as snapshot:
            now_ms = snapshot.now_ms
            yield Reading(snapshot, SoftChanges(), Now(now_ms, now_ms, now_ms, now_ms))
    except (SettingsError, StoreError) as error:
        raise click.ClickException(str(error)) from error


def refuse_unknown(reading: Reading, gateway: str) -> None:
    """Refuse a gateway without any data: usually the name is mistyped."""
    if reading.get(DELTA_GATEWAY, (gateway_key(gateway),)) is None:
        raise click.ClickException(printable(f"There is no gateway {gateway} in this store."))

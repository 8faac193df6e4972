"""Opens the store of a server read-only beside it, by its settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from semel.cli.output import printable
from semel.contracts.deltas.tables import DELTA_GATEWAY, gateway_key
from semel.contracts.deltas.tables import TABLES as DELTA_TABLES
from semel.contracts.epoch import TABLES as EPOCH_TABLES
from semel.contracts.schema import MIGRATIONS
from semel.engine.reading import Reading
from semel.engine.soft import SoftChanges
from semel.kernel.clock import Now
from semel.server.settings_loader import SettingsError, load_settings
from semel.server.world import SystemWorld
from semel.store.open import read_beside
from semel.store.protocol import StoreError


@contextmanager
def reading_beside(config: Path | None, store: str | None, data: str | None) -> Iterator[Reading]:
    """A snapshot of the store that a server with these settings would use; every error is one sentence."""
    try:
        # This listens nowhere: what a server must know before it may listen is not asked for.
        settings = load_settings({"store": store, "data": data, "host": "127.0.0.1"}, os.environ, config)
        tables = (*DELTA_TABLES, *EPOCH_TABLES)
        with read_beside(settings.store_url, tables, MIGRATIONS, SystemWorld().wall_ms) as snapshot:
            now_ms = snapshot.now_ms
            yield Reading(snapshot, SoftChanges(), Now(now_ms, now_ms, now_ms, now_ms))
    except (SettingsError, StoreError) as error:
        raise click.ClickException(str(error)) from error


def refuse_unknown(reading: Reading, gateway: str) -> None:
    """A gateway that nothing has happened in is a typing mistake, more often than not."""
    if reading.get(DELTA_GATEWAY, (gateway_key(gateway),)) is None:
        raise click.ClickException(printable(f"There is no gateway {gateway} here."))

"""The options that name the store of a server, for commands that open it themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from semel.cli.command import Opt, OptionSet
from semel.kernel.namespace import DEFAULT, NamespaceNameError

if TYPE_CHECKING:
    from semel.engine.reading import Reading
    from semel.server.settings import ServerSettings

ConfigFile = Annotated[Path | None, Opt("TOML file with settings.", envvar="SEMEL_CONFIG")]


@dataclass(frozen=True)
class StoreOptions(OptionSet):
    """The settings of a server that decide where its store is. The server's libraries are loaded on use."""

    config: ConfigFile = None
    store: Annotated[str | None, Opt("Store URL: sqlite:FOLDER or postgresql://...  [SEMEL_STORE]", "", "URL")] = None
    data: Annotated[
        str | None, Opt("Folder of the embedded database, without --store.  [SEMEL_DATA; data]", "", "FOLDER")
    ] = None

    namespace: Annotated[str, Opt("Namespace of the store, as in /ns/NAME/.", "", "NAME", show_default=True)] = DEFAULT

    def settings(self) -> ServerSettings:
        """The settings of a server that would use this store."""
        from semel.server.offline_store import store_settings  # noqa: PLC0415
        from semel.server.settings_loader import SettingsError  # noqa: PLC0415

        try:
            return store_settings(self.config, self.store, self.data, self.namespace)
        except (SettingsError, NamespaceNameError) as error:
            raise click.ClickException(str(error)) from error

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """A snapshot of the store, read beside a running server."""
        from semel.server.offline_store import reading_of, snapshot_of  # noqa: PLC0415
        from semel.store.protocol import StoreError  # noqa: PLC0415

        try:
            with snapshot_of(self.settings().store_url) as snapshot:
                yield reading_of(snapshot)
        except StoreError as error:
            raise click.ClickException(str(error)) from error

"""What `semel config` says: every setting with its value and origin, and everything that would keep a server from
starting with them. Nothing is started, created or changed; ports are opened and closed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from semel.kernel.namespace import folder_of
from semel.server.auth.credentials import TokenFileError, read_principals
from semel.server.auth.jwt_claims import KeyFileError
from semel.server.http.tls import Tls, TlsFileError
from semel.server.listen import ListenError, listen
from semel.server.ops.self_check import check_writable, lock_holder
from semel.server.quotas.limits import default_limits, read_quotas
from semel.server.setting_lines import HIDDEN, SettingLine, lines_of
from semel.server.setting_values import SettingsError
from semel.server.settings import ServerSettings
from semel.server.settings_loader import given_values, judged_settings, setting_fields
from semel.store.migrations import pending
from semel.store.open import refuse_moved, shown
from semel.store.protocol import StoreError
from semel.surfaces.registry import SCOPE_RULES, SURFACES
from semel.surfaces.schema import MIGRATIONS

__all__ = ["HIDDEN", "SettingLine", "SettingSources", "setting_faults", "setting_lines"]


class SettingSources(NamedTuple):
    """Where the settings of a server come from."""

    flags: Mapping[str, Any]
    environment: Mapping[str, str]
    file: Path | None


def setting_lines(sources: SettingSources) -> list[SettingLine]:
    """Every setting; a secret and the password of a store are not shown. An invalid one has its default."""
    *_, settings = judged_settings(*sources)
    try:
        given = given_values(*sources)
    except SettingsError:
        given = given_values(sources.flags, sources.environment, None)
    assert isinstance(settings, ServerSettings)
    return lines_of(settings, given)


def setting_faults(sources: SettingSources) -> Iterator[str]:
    """A sentence for everything that would keep a server from starting: all of them, not the first alone."""
    *errors, settings = judged_settings(*sources)
    yield from dict.fromkeys(map(str, errors))
    assert isinstance(settings, ServerSettings)
    for check in (_surfaces, _credentials, _tls, _ports, _store):
        yield from check(settings)


def _surfaces(settings: ServerSettings) -> Iterator[str]:
    for surface in SURFACES:
        yield from _said(lambda surface=surface: surface.check(settings))  # type: ignore[misc]


def _credentials(settings: ServerSettings) -> Iterator[str]:
    yield from _said(lambda: read_principals(settings, SCOPE_RULES))
    yield from _said(lambda: read_quotas(settings.tokens, default_limits(settings)))


def _tls(settings: ServerSettings) -> Iterator[str]:
    if settings.tls_certificate and settings.tls_key:
        yield from _said(lambda: Tls(settings.tls_certificate, settings.tls_key))


def _ports(settings: ServerSettings) -> Iterator[str]:
    """Ports that are in use, unless by the server that runs on the data folder."""
    names = [one.name for one in setting_fields() if one.name == "port" or one.name.endswith("_port")]
    seen: dict[int, str] = {}
    for name, port in ((name, getattr(settings, name)) for name in names if getattr(settings, name) > 0):
        if port in seen:
            if (seen[port], name) != ("port", "control_port"):  # the settings themselves say so
                yield f"{seen[port]} and {name} are both {port}: give them different ports."
        elif not _is_running(settings):
            yield from _said(lambda name=name, port=port: _try_port(settings.host, name, port))  # type: ignore[misc]
        seen.setdefault(port, name)


def _try_port(host: str, name: str, port: int) -> None:
    listen(host, port, f"--{name.replace('_', '-')}").close()


def _is_running(settings: ServerSettings) -> bool:
    folder = folder_of(settings.store_url)
    return folder is not None and lock_holder(folder) is not None


def _store(settings: ServerSettings) -> Iterator[str]:
    found = check_writable(settings.folder)
    if not found.is_ok:
        yield f"data: {found.found}. {found.advice}"
    yield from _said(lambda: pending(MIGRATIONS, refuse_moved(settings.store_url).version, shown(settings.store_url)))


def _said(check: Callable[[], object]) -> Iterator[str]:
    try:
        check()
    except (SettingsError, TokenFileError, KeyFileError, TlsFileError, ListenError, StoreError) as error:
        yield str(error)

"""Loads every setting: from flags, `SEMEL_*` variables and a TOML file, in this order.

The settings of the server and of each surface in the registry are one class at run time. The variable of a setting is
its name in capitals after `SEMEL_`; in TOML it is the name itself. Some settings have alias variables, which are used
if the variable of Semel is not set.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, fields
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from semel.server.setting_values import GivenValue, SettingsError, convert, set_for
from semel.server.settings import JWT_ALGORITHMS, PREFIX, ServerSettings, SurfaceSettings, aliases_of, settings_of
from semel.surfaces.registry import NAMES

__all__ = [
    "ALIASES",
    "PREFIX",
    "SettingsError",
    "SettingsSource",
    "disagreements",
    "given_values",
    "judged_settings",
    "load_settings",
    "make_settings",
    "setting_fields",
    "setting_sections",
]

_SURFACES: tuple[type[SurfaceSettings], ...] = tuple(
    import_module(f"semel.surfaces.{name}.settings").SETTINGS for name in NAMES
)
"""Imported by module and not through the registry: a command that reads settings imports no surface."""
_KINDS: tuple[type[Any], ...] = (ServerSettings, *_SURFACES)
_SETTINGS: type[Any] = dataclass(frozen=True)(type("Settings", tuple(reversed(_KINDS)), {}))
"""Reversed, because the fields of the last base class come first."""
ALIASES = aliases_of(_SETTINGS)
"""Alias variables, by setting; an earlier one wins."""


def setting_fields() -> tuple[Field[Any], ...]:
    """Every setting: those of the server first, then those of each surface."""
    return fields(_SETTINGS)


def setting_sections() -> dict[str, list[Field[Any]]]:
    """Every setting in the same order, under the headings of the server and one heading for each surface."""
    sections: dict[str, list[Field[Any]]] = {}
    heading = ""
    for one in fields(ServerSettings):
        heading = ServerSettings.headings.get(one.name, heading)
        sections.setdefault(heading, []).append(one)
    surfaces = zip(NAMES, _SURFACES, strict=True)
    return sections | {name.capitalize(): list(fields(kind)) for name, kind in surfaces}


def make_settings(**values: Any) -> ServerSettings:
    """Settings with these values, and the defaults of all others; nothing is checked."""
    return cast(ServerSettings, _SETTINGS(**values))


def load_settings(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> ServerSettings:
    """Settings from all three sources; an unknown name is an error."""
    settings = None
    for one in judged_settings(flags, environment, file):
        if isinstance(one, SettingsError):
            raise one
        settings = one
    assert settings is not None
    return settings


class SettingsSource:
    """Loads the settings from the same flags, environment and file, again and again."""

    def __init__(self, flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> None:
        self._sources = flags, environment, file
        self.given: Mapping[str, GivenValue] = {}
        """The values that were given at the last load, with their places."""

    def __call__(self) -> ServerSettings:
        """Load them; `SettingsError` for an invalid one."""
        settings = load_settings(*self._sources)
        self.given = given_values(*self._sources)
        return settings


def judged_settings(
    flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None
) -> Iterator[SettingsError | ServerSettings]:
    """The settings, after every error in them; they have the defaults of those that cannot be used."""
    known = {one.name: one for one in setting_fields()}
    values: dict[str, Any] = {}
    try:
        given = given_values(flags, environment, file)
    except SettingsError as error:
        yield error
        given = given_values(flags, environment, None)
    for name, one in given.items():
        try:
            if name not in known:
                raise _unknown(name, one.place, known)
            values[name] = convert(known[name], one)
        except SettingsError as error:
            yield error
    settings = make_settings(**values)
    checks: list[Callable[[ServerSettings], None]] = [*_CHECKS, *(partial(_check_surface, kind) for kind in _SURFACES)]
    for check in checks:
        try:
            check(settings)
        except SettingsError as error:
            yield error
    try:
        disagreements(environment)  # so that an invalid variable is an error even if it is not used
    except SettingsError as error:
        yield error
    yield settings


def given_values(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> dict[str, GivenValue]:
    """The given value of each name, known or not, from the source that wins. Raises `SettingsError` for the file."""
    given = _from_file(file) | _from_environment(environment)
    named = {name: value for name, value in flags.items() if value is not None}
    return given | {name: GivenValue(value, f"--{name.replace('_', '-')}", "flag") for name, value in named.items()}


def _check_surface(kind: type[SurfaceSettings], settings: ServerSettings) -> None:
    kind.check(settings_of(settings, kind), settings)


def _unknown(name: str, place: str, known: Iterable[str]) -> SettingsError:
    """The error for an unknown name, with the setting that was probably meant."""
    is_variable = place.startswith(PREFIX)
    written = place if is_variable else f"{name} ({place})"
    close = get_close_matches(name, known, n=1)
    meant = "".join(f"did you mean {PREFIX + one.upper() if is_variable else one}? " for one in close)
    return SettingsError(f"There is no setting {written}; {meant}`semel serve --help` lists them.")


def _from_file(file: Path | None) -> dict[str, GivenValue]:
    if file is None:
        return {}
    try:
        values = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"The configuration file {file} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"The configuration file {file} is not valid TOML: {error}.") from error
    return {name: GivenValue(value, f"in {file}", "file") for name, value in values.items()}


_ELSEWHERE = frozenset({"url", "token", "config"})
"""Variables of the command line client."""


def _from_environment(environment: Mapping[str, str]) -> dict[str, GivenValue]:
    found: dict[str, GivenValue] = {}
    for name, aliases in ALIASES.items():
        for alias in aliases:
            if alias in environment and name not in found:
                found[name] = GivenValue(environment[alias], alias)
    for variable, value in environment.items():
        name = variable[len(PREFIX) :].lower()
        if variable.startswith(PREFIX) and name not in _ELSEWHERE:
            found[name] = GivenValue(value, variable)
    return found


def disagreements(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each setting whose variables have different values, with their names and no value.

    An invalid variable raises, even if another one wins, because it was set by mistake.
    """
    told = []
    known = {one.name: one for one in setting_fields()}
    for name in ALIASES:
        named = set_for(PREFIX + name.upper(), ALIASES[name], environment)
        meant = [convert(known[name], GivenValue(one.value, one.variable)) for one in named]
        ignored = [one.variable for one, value in zip(named, meant, strict=True) if value != meant[0]]
        if ignored:
            told.append(f"{named[0].variable} is used; {' and '.join(ignored)} has another value and is ignored.")
    return told


def _check_ports(settings: ServerSettings) -> None:
    if settings.port and settings.port == settings.control_port:
        raise SettingsError(f"port and control_port are both {settings.port}: give them different ports.")


def _check_tls(settings: ServerSettings) -> None:
    if bool(settings.tls_certificate) != bool(settings.tls_key):
        raise SettingsError("tls_certificate and tls_key belong together: give both, or none.")


def _check_bind(settings: ServerSettings) -> None:
    if not settings.is_loopback and not settings.has_credentials and not settings.insecure:
        raise SettingsError(
            f"Listening on {settings.host} without credentials would let anyone write: give --stored-tokens, a token "
            "file with --tokens, keys with --jwt-keys or a token in SEMEL_TOKEN_ACTIVE, or --insecure if the network "
            "is closed."
        )


def _check_tokens(settings: ServerSettings) -> None:
    for name in ("token_active", "token_next"):
        token = getattr(settings, name)
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise SettingsError(f"{name} must be ASCII without spaces, because clients send it in a header.")
    if settings.token_next and not settings.token_active:
        raise SettingsError("token_next is the successor of token_active: give token_active too.")
    if settings.token_rotation_until and not settings.token_next:
        raise SettingsError("token_rotation_until is when token_next replaces token_active: give token_next too.")
    if settings.token_required and settings.needs_token and not settings.has_credentials:
        raise SettingsError("token_required needs credentials: give stored_tokens, tokens, jwt_keys or token_active.")
    if settings.token_required and not settings.needs_token and not settings.is_loopback:
        raise SettingsError(
            f"token_required may be 0 only on loopback, and host is {settings.host}: remove one of the two."
        )


def _check_allowed(settings: ServerSettings) -> None:
    for name in ("allowed_hosts", "allowed_origins"):
        if not settings.needs_token and "*" in [item.strip() for item in getattr(settings, name).split(",")]:
            raise SettingsError(f"{name} may be * only if callers need a credential: list the names to allow.")


def _check_jwt(settings: ServerSettings) -> None:
    for name in settings.jwt_algorithm_names:
        if name not in JWT_ALGORITHMS:
            known = ", ".join(JWT_ALGORITHMS)
            raise SettingsError(f"jwt_algorithms has {name!r}: give some of {known}, separated by commas.")
    if settings.has_key_url:
        _check_key_url(settings)
    if not settings.jwt_keys and (settings.jwt_issuer or settings.jwt_audience):
        raise SettingsError("jwt_issuer and jwt_audience need jwt_keys: give the file with the keys of the JWTs.")
    if settings.jwt_ca_file and not settings.jwt_keys.startswith("https:"):
        raise SettingsError("jwt_ca_file needs an https URL in jwt_keys: give one, or remove jwt_ca_file.")


def _check_key_url(settings: ServerSettings) -> None:
    """Keys that anyone on the way could exchange would let anyone in: a URL is https, or on this machine."""
    url = settings.jwt_keys
    is_plain = url.isascii() and url.isprintable() and not set(" @#") & set(url)
    try:
        parts = urlsplit(url if is_plain else "")
        host = (parts.port, parts.hostname)[1]  # a port that is no number raises, too
    except ValueError:
        host = None
    if not host:
        raise SettingsError("jwt_keys is not a usable URL: write it as https://HOST/PATH, without a user.")
    if url.startswith("http:") and not _is_loopback(host):
        raise SettingsError("jwt_keys may be an http URL only on loopback: give an https URL.")
    if settings.jwt_algorithm_names == ("HS256",):
        raise SettingsError("jwt_keys as a URL publishes keys, so HS256 is not used: add another algorithm.")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


_CHECKS = (_check_ports, _check_tls, _check_jwt, _check_tokens, _check_allowed, _check_bind)

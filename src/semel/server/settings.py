"""Every setting: its name, default and meaning, from flags, `SEMEL_*` variables, a TOML file, in this order.

The variable of a setting is its name in capitals behind `SEMEL_`; in TOML it is the name itself.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any

PREFIX = "SEMEL_"
JWT_ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")


class SettingsError(ValueError):
    """A setting cannot be used; the message says which and why."""


def _setting(default: Any, about: str, least: int | None = None) -> Any:
    return field(default=default, metadata={"about": about, "least": least})


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server runs with."""

    host: str = _setting("127.0.0.1", "address to listen on; anything but loopback needs credentials")
    port: int = _setting(8788, "port to listen on; 0 takes a free one", 0)
    data: str = _setting("data", "folder of the embedded database")
    store: str = _setting(
        "", "store URL: sqlite:FOLDER, postgresql://... or memory:; empty is sqlite in the data folder"
    )
    tokens: str = _setting("", "TOML file with bearer tokens (hashed); without it and jwt_keys: development mode")
    jwt_keys: str = _setting("", "JSON file with the keys (JWKS) that JWTs are verified with; empty takes no JWTs")
    jwt_algorithms: str = _setting(",".join(JWT_ALGORITHMS), "algorithms of JWTs that are taken, of these four")
    jwt_issuer: str = _setting("", "the `iss` that JWTs must have; empty takes any")
    jwt_audience: str = _setting("", "the `aud` that JWTs must have; empty takes only those without one")
    insecure: bool = _setting(False, "listen beyond loopback without credentials")
    log_format: str = _setting("auto", "auto (text on a terminal, else json), text or json")
    log_level: str = _setting("info", "debug, info, warning or error")
    max_body_bytes: int = _setting(16 * 1024 * 1024, "largest request body", 1)
    max_uploads_bytes: int = _setting(256 * 1024 * 1024, "bodies that arrive in pieces, all together", 1)
    queue_writes: int = _setting(4_096, "writes that may wait for a commit; more are answered 503", 1)
    queue_bytes: int = _setting(256 * 1024 * 1024, "bytes of waiting writes; more are answered 503", 1)
    batch_writes: int = _setting(512, "writes in one transaction", 1)
    sweep_interval_ms: int = _setting(5_000, "rest between two sweeps", 10)
    shutdown_ms: int = _setting(10_000, "time for open requests to end at shutdown", 0)
    streams_long_poll_ms: int = _setting(30_000, "how long a long poll waits; also the pace of idle SSE events", 1)
    streams_sse_max_ms: int = _setting(60_000, "how long an SSE connection lives before the client must reconnect", 1)
    streams_page_bytes: int = _setting(1024 * 1024, "content of one read response (one append is never split)", 1)
    streams_idempotency_ttl_ms: int = _setting(86_400_000, "how long an Idempotency-Key is honoured", 1)
    events_message_bytes: int = _setting(1024 * 1024, "largest message or body, and about the largest page", 1_024)
    events_batch_items: int = _setting(100, "items in one submission", 1)
    events_in_flight_items: int = _setting(200, "items of one connection that may wait for a commit", 1)
    events_rate_messages: int = _setting(0, "messages a second that one connection is listened to; 0 is no limit", 0)
    events_bad_messages: int = _setting(100, "so many malformed messages in a row end a connection", 1)
    events_idle_ms: int = _setting(30_000, "silence after which a connection that should send heartbeats is closed", 1)
    events_ping_ms: int = _setting(20_000, "pace of pings to clients that send no heartbeats", 1)
    events_slow_ms: int = _setting(60_000, "a client that reads nothing for so long is cut off", 1)
    events_buffer_bytes: int = _setting(256 * 1024, "what may wait unsent for one connection before it is refilled", 1)
    events_validator: str = _setting("", "module:callable or entry point that may reject events; empty is none")
    events_strict_types: bool = _setting(False, "take only the event types of the connection's profile")
    events_model_version: int = _setting(0, "version of the application's model, told to clients; 0 is none", 0)
    events_retention_ms: int = _setting(0, "how long events are kept; 0 is for ever; ids are remembered anyway", 0)
    crash_point: str = _setting("", "crash tests only: kill the process at this point of the commit path")
    crash_one_in: int = _setting(100, "crash tests only: on average once in so many passes", 1)
    commit_delay_ms: int = _setting(0, "overload tests only: extra time that each commit takes", 0)

    @property
    def store_url(self) -> str:
        """Where the rows are kept."""
        return self.store or f"sqlite:{self.data}"

    @property
    def has_credentials(self) -> bool:
        """Whether callers must say who they are."""
        return bool(self.tokens or self.jwt_keys)

    @property
    def jwt_algorithm_names(self) -> tuple[str, ...]:
        """The algorithms, one by one."""
        return tuple(name.strip() for name in self.jwt_algorithms.split(","))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def load_settings(flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> Settings:
    """Settings from all three places; a name that does not exist is an error, not a silence."""
    known = {one.name: one for one in fields(Settings)}
    given: dict[str, Any] = {}
    for source, values in (("file", _from_file(file)), ("environment", _from_environment(environment))):
        for name, value in values.items():
            if name not in known:
                raise SettingsError(f"There is no setting {_spelled(name, source)}; `semel serve --help` lists them.")
            given[name] = value
    given.update({name: value for name, value in flags.items() if value is not None})
    settings = Settings(**{name: _convert(known[name], value) for name, value in given.items()})
    _check(settings)
    return settings


def _from_file(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"The configuration file {file} cannot be read: {error}") from error


_ELSEWHERE = frozenset({"url", "token", "config"})
"""Variables of the command line client."""


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    named = {name[len(PREFIX) :].lower(): value for name, value in environment.items() if name.startswith(PREFIX)}
    return {name: value for name, value in named.items() if name not in _ELSEWHERE}


def _spelled(name: str, source: str) -> str:
    return PREFIX + name.upper() if source == "environment" else name


def _convert(one: Any, value: Any) -> Any:
    wanted = one.type
    try:
        if wanted == "int":
            number = int(value) if isinstance(value, str | int) else -1
            least = one.metadata["least"]
            if isinstance(value, bool | float) or (least is not None and number < least):
                raise ValueError
            return number
        if wanted == "bool":
            return value if isinstance(value, bool) else {"1": True, "true": True, "0": False, "false": False}[value]
        if not isinstance(value, str):
            raise ValueError
        return value
    except (ValueError, TypeError, KeyError):
        raise SettingsError(f"The setting {one.name} ({one.metadata['about']}) cannot be {value!r}.") from None


def _check(settings: Settings) -> None:
    if settings.port > 65_535:
        raise SettingsError(f"There is no port {settings.port}.")
    if settings.log_format not in ("auto", "text", "json"):
        raise SettingsError("log_format is auto, text or json.")
    if settings.log_level not in ("debug", "info", "warning", "error"):
        raise SettingsError("log_level is debug, info, warning or error.")
    _check_jwt(settings)
    if not settings.is_loopback and not settings.has_credentials and not settings.insecure:
        raise SettingsError(
            f"Listening on {settings.host} without credentials would let anyone write: give a token file with "
            "--tokens or a key file with --jwt-keys, or --insecure if the network is closed."
        )


def _check_jwt(settings: Settings) -> None:
    for name in settings.jwt_algorithm_names:
        if name not in JWT_ALGORITHMS:
            known = ", ".join(JWT_ALGORITHMS)
            raise SettingsError(f"jwt_algorithms names algorithms with commas between, of {known}; not {name!r}.")
    if not settings.jwt_keys and (settings.jwt_issuer or settings.jwt_audience):
        raise SettingsError("jwt_issuer and jwt_audience speak of JWTs: give their keys with jwt_keys.")

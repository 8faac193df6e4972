"""The settings of the server itself, and the base class for the settings of a surface.

Every setting has a name, a default and a description. The settings of a surface are in its own package, in a class
whose names begin with the name of the surface; `settings_loader` joins all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from typing import ClassVar, Self, TypeVar

from semel.kernel.clock import utc_ms
from semel.kernel.namespace import DEFAULT, MOST, RULE, WITHIN, folder_of, names_in, url_within
from semel.server.http.cors import OriginPolicy, check_hosts, check_origins, make_policy
from semel.server.http.remote_address import networks_of
from semel.server.quotas.limits import quota_setting
from semel.server.setting_values import MANY, checked, choice, secret, setting

PREFIX = "SEMEL_"
JWT_ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")

_SWITCH = ("0", "1", "false", "true")
_DAY_MS = 86_400_000
_LARGE = 16 * 1024 * 1024


@dataclass(frozen=True)
class ServerSettings:
    """The settings of the server; at run time the object also has those of its surfaces."""

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "token_active": ("SHERATAN_HUB_TOKEN_ACTIVE", "SHERATAN_HUB_TOKEN"),
        "token_next": ("SHERATAN_HUB_TOKEN_NEXT",),
        "token_rotation_until": ("SHERATAN_HUB_TOKEN_ROTATION_UNTIL",),
        "token_required": ("SHERATAN_HUB_TOKEN_REQUIRED",),
    }
    """Alias variables, used if the variable of Semel is not set; an earlier one wins."""

    headings: ClassVar[Mapping[str, str]] = {
        "host": "Server",
        "max_body_bytes": "HTTP",
        "tokens": "Credentials and origins",
        "quota_requests_per_second": "Quotas of a principal",
        "data": "Engine and store",
    }
    """Headings of `semel serve --help`; each precedes the setting that it is given for."""

    host: str = setting("127.0.0.1", "address to listen on; beyond loopback it needs credentials, or insecure")
    port: int = setting(8788, "TCP port to listen on; 0 takes a free port", 0, 65_535)
    tls_certificate: str = setting("", "PEM file with the certificate and its chain, for https; needs tls_key")
    tls_key: str = setting("", "PEM file with the key of the certificate, without a password; needs tls_certificate")
    control_port: int = setting(0, "second TCP port, for health, metrics and diagnosis; 0 opens none", 0, 65_535)
    console: bool = setting(True, "serve the console at /console, on the control port if there is one")
    log_format: str = choice("auto", "log lines as text, json, or auto (text on a terminal, else json)", "text", "json")
    log_level: str = choice(
        "info", "lowest level of Semel's own log lines: debug, info, warning or error", "debug", "warning", "error"
    )
    access_log: bool = setting(False, "write one JSON line for each request to logs/access.jsonl in the data folder")
    slow_log_ms: int = setting(
        0,
        "write requests that take at least this time in ms to logs/slow.jsonl in the data folder; 0 is off",
        0,
        _DAY_MS,
    )
    otel: bool = setting(
        False, "send traces of requests with a sampled traceparent over OTLP/HTTP, as the OTEL_* variables say"
    )
    audit_file_bytes: int = setting(
        10 * 1024 * 1024, "size in bytes at which an audit file is moved aside; 5 older ones are kept", 4_096, 2**31
    )
    ready_free_bytes: int = setting(
        64 * 1024 * 1024,
        "free bytes on the disk of the data folder below which /readyz answers 503; below 16 MiB it always does",
        0,
    )
    ready_clock_ms: int = setting(
        60_000,
        "difference in ms between the clocks of node and database beyond which /readyz answers 503; 0 ignores clocks",
        0,
        _DAY_MS,
    )
    shutdown_ms: int = setting(10_000, "time in ms for open requests to end at shutdown", 0)

    max_body_bytes: int = setting(16 * 1024 * 1024, "largest request body in bytes; a larger one gets 413", 1)
    max_uploads_bytes: int = setting(
        256 * 1024 * 1024, "max bytes of all request bodies that are being received; beyond it 503", 1
    )
    http_max_connections: int = setting(20_000, "max open HTTP connections; further ones get 503", 1, MANY)
    http_max_connections_per_address: int = setting(
        2_000, "max open HTTP and gRPC connections of one remote address; 0 is no limit", 0, MANY
    )
    http_uncounted_addresses: str = checked(
        networks_of,
        "addresses or networks of reverse proxies without a limit per address, separated by commas",
        "127.0.0.1,::1",
    )
    http_max_head_bytes: int = setting(65_536, "max bytes of request target and headers; more get 431", 1_024, _LARGE)
    http_silence_ms: int = setting(
        30_000, "close a connection that sends nothing for this time during a request, in ms", 100, _DAY_MS
    )
    http_head_ms: int = setting(30_000, "time limit in ms for the request target and headers to arrive", 100, _DAY_MS)
    http_body_ms: int = setting(600_000, "time limit in ms for a request body to arrive", 100, _DAY_MS)
    http_idle_ms: int = setting(75_000, "close a connection without a request after this time in ms", 100, _DAY_MS)
    http_stall_ms: int = setting(
        60_000, "close a connection whose client reads no answer for this time in ms", 100, _DAY_MS
    )

    tokens: str = setting(
        "", "TOML file with hashed bearer tokens; without any credentials the server runs in development mode"
    )
    stored_tokens: bool = setting(
        False, "require a credential from the first start on: tokens are made with `semel token create`"
    )
    max_stored_tokens: int = setting(
        1_000, "max tokens in the store, those that have ended included; the one that ended first makes room", 1, 5_000
    )
    stored_token_retention_ms: int = setting(
        30 * _DAY_MS, "time in ms for which a token that has ended stays listed in the store", 1_000, 3_660 * _DAY_MS
    )
    token_active: str = secret("one bearer token for all callers; its principal is `default`, with all roles")
    token_next: str = secret("the successor of token_active; both are accepted until the rotation ends")
    token_rotation_until: str = checked(
        utc_ms, "time with zone, such as 2030-01-31T12:00:00Z, from which only token_next is accepted"
    )
    token_required: str = choice(
        "", "1: require a token; 0: require none (loopback only); empty: require one if credentials are set", *_SWITCH
    )
    insecure: bool = setting(False, "allow listening beyond loopback without credentials")
    jwt_keys: str = setting(
        "", "JSON file (JWKS) with the keys that verify JWTs, or its https URL; empty accepts no JWTs"
    )
    jwt_ca_file: str = setting(
        "", "PEM file with the CA certificates trusted for the https URL of jwt_keys; empty trusts those of the system"
    )
    jwt_algorithms: str = setting(",".join(JWT_ALGORITHMS), "signature algorithms of JWTs, separated by commas")
    jwt_issuer: str = setting("", "required `iss` claim of JWTs; empty accepts any")
    jwt_audience: str = setting("", "required `aud` claim of JWTs; empty accepts only JWTs without one")
    allowed_hosts: str = checked(
        check_hosts, "host names allowed in the Host header, separated by commas; *.NAME allows all below NAME"
    )
    allowed_origins: str = checked(
        check_origins, "origins of web pages that may call (CORS), such as https://app.example, separated by commas"
    )

    quota_requests_per_second: int = quota_setting("max requests a second of one principal; further ones get 429")
    quota_body_bytes_per_second: int = quota_setting(
        "max bytes a second of the request bodies of one principal; further requests get 429", is_bytes=True
    )
    quota_in_flight_writes: int = quota_setting("max writes of one principal that wait for a commit; more get 429")
    quota_connections: int = quota_setting("max open connections of one principal; further ones get 429")
    quota_live_readers: int = quota_setting(
        "max live readers of one principal: event streams, long polls, WebSocket subscriptions, gRPC streams"
    )
    quota_subscriptions: int = quota_setting("max subscriptions to streams that one principal has created")

    data: str = setting(
        "data", "folder of the embedded database and of the logs; sqlite:FOLDER as store takes its place"
    )
    store: str = setting(
        "", "store URL: sqlite:FOLDER, postgresql://... or memory:; empty is sqlite in the data folder"
    )
    namespaces: str = checked(
        names_in,
        f"further namespaces at /ns/NAME/, at most {MOST}, separated by commas; each has its own store, and the limits "
        "on queues and keys count for each; a name is " + RULE,
    )
    sqlite_key_index_bytes: int = setting(
        192 * 1024 * 1024,
        "SQLite only: memory in bytes for the index of keys: 192 MiB hold 8 million; the oldest beyond it are on disk",
        1_024,
    )
    queue_writes: int = setting(4_096, "max writes that wait for a commit; further ones get 503", 1)
    queue_bytes: int = setting(256 * 1024 * 1024, "max bytes of writes that wait for a commit; more get 503", 1)
    queue_principal_share: float = setting(
        0.5, "share of queue_writes and queue_bytes that one caller with a credential may hold; 1 is all", 0.01, 1
    )
    batch_writes: int = setting(512, "max writes in one transaction (group commit)", 1)
    commit_thread: str = choice(
        "auto",
        "SQLite only: whether COMMIT runs in a thread: auto (if the median takes longer than 1 ms), always or never",
        "always",
        "never",
    )
    sweep_interval_ms: int = setting(5_000, "time in ms between two sweeps for expired data", 10)

    @property
    def store_url(self) -> str:
        """The URL of the store."""
        return self.store or f"sqlite:{self.data}"

    @property
    def folder(self) -> Path:
        """The data folder: that of the store, or `data` if the store has none."""
        return folder_of(self.store_url) or Path(self.data)

    @property
    def logs(self) -> Path:
        """The folder of the audit log and the access log, beside the store."""
        return self.folder / "logs"

    @property
    def namespace_names(self) -> tuple[str, ...]:
        """The namespaces of the process besides the default one."""
        return names_in(self.namespaces)

    def within(self, namespace: str) -> Self:
        """The settings of one namespace: its own store, and its own folder for the audit log."""
        store = url_within(self.store_url, namespace)
        if namespace == DEFAULT:
            return self
        return replace(self, store=store, data=f"{self.data}/{WITHIN}{namespace}", namespaces="")

    @property
    def has_credentials(self) -> bool:
        """Whether any credential is configured."""
        return bool(self.tokens or self.jwt_keys or self.token_active or self.stored_tokens)

    @property
    def has_key_url(self) -> bool:
        """Whether the keys of JWTs come from a URL."""
        return self.jwt_keys.startswith(("https://", "http://"))

    @property
    def lets_anyone(self) -> bool:
        """Whether a caller without a credential is accepted although credentials are configured."""
        return self.token_required in ("0", "false")

    @property
    def needs_token(self) -> bool:
        """Whether a caller without a credential is refused."""
        return self.token_required in ("1", "true") if self.token_required else self.has_credentials

    @property
    def origin_policy(self) -> OriginPolicy:
        """The policy for web pages (CORS)."""
        return make_policy(
            self.allowed_hosts, self.allowed_origins, is_open=not self.needs_token, is_loopback=self.is_loopback
        )

    @property
    def jwt_algorithm_names(self) -> tuple[str, ...]:
        """The names of the algorithms."""
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


@dataclass(frozen=True)
class SurfaceSettings:
    """The settings of one surface; each name begins with the surface's name."""

    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def check(self, server: ServerSettings) -> None:
        """Raise `SettingsError` for values that contradict each other."""


S = TypeVar("S", bound=SurfaceSettings)


def settings_of(settings: ServerSettings, kind: type[S]) -> S:
    """The settings of one surface."""
    found: object = settings
    assert isinstance(found, kind), f"{kind.__name__} is not in the registry of surfaces"
    return found


def aliases_of(kind: type) -> dict[str, tuple[str, ...]]:
    """The alias variables of every setting of a class."""
    return {name: names for one in kind.__mro__ for name, names in vars(one).get("aliases", {}).items()}

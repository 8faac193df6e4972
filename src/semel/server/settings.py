"""All settings: name, default and help; read from flags, `SEMEL_*` variables and a TOML file, in this order.

The variable of a setting is its name in capitals behind `SEMEL_`; in TOML it is the name itself. Some have variables of
other names too (`aliases`), which count where ours is not set.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from semel.kernel.utc import utc_ms
from semel.server.addresses import networks_of
from semel.server.aliases import ALIASES, set_for
from semel.server.origin_policy import OriginPolicy, check_hosts, check_origins, make_policy
from semel.server.setting_values import Given, SettingsError, checked, choice, convert, secret, setting

__all__ = ["JWT_ALGORITHMS", "PREFIX", "Settings", "SettingsError", "disagreements", "load_settings"]

PREFIX = "SEMEL_"
JWT_ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")


_SWITCH = ("0", "1", "false", "true")
_CENTURY = 100 * 366 * 86_400
_DAY_MS = 86_400_000
_MANY = 1_000_000_000
_LARGE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a server."""

    host: str = setting("127.0.0.1", "address to listen on; beyond loopback it needs credentials, or insecure")
    port: int = setting(8788, "TCP port to listen on; 0 takes a free port", 0, 65_535)
    data: str = setting("data", "folder of the embedded database")
    store: str = setting(
        "", "store URL: sqlite:FOLDER, postgresql://... or memory:; empty is sqlite in the data folder"
    )
    tokens: str = setting(
        "", "TOML file with hashed bearer tokens; without any credentials the server runs in development mode"
    )
    jwt_keys: str = setting("", "JSON file (JWKS) with the keys that verify JWTs; empty accepts no JWTs")
    jwt_algorithms: str = setting(",".join(JWT_ALGORITHMS), "signature algorithms of JWTs, separated by commas")
    jwt_issuer: str = setting("", "required `iss` claim of JWTs; empty accepts any")
    jwt_audience: str = setting("", "required `aud` claim of JWTs; empty accepts only JWTs without one")
    allowed_hosts: str = checked(
        check_hosts, "host names allowed in the Host header, separated by commas; *.NAME allows all below NAME"
    )
    allowed_origins: str = checked(
        check_origins, "origins of web pages that may call (CORS), such as https://app.example, separated by commas"
    )
    insecure: bool = setting(False, "allow listening beyond loopback without credentials")
    token_active: str = secret("one bearer token for all callers; its principal is `default`, with all roles")
    token_next: str = secret("the successor of token_active; both are accepted until the rotation ends")
    token_rotation_until: str = checked(
        utc_ms, "time with zone, such as 2030-01-31T12:00:00Z, from which only token_next is accepted"
    )
    token_required: str = choice(
        "", "1: require a token; 0: require none (loopback only); empty: require one if credentials are set", *_SWITCH
    )
    control_port: int = setting(0, "second TCP port, for health, metrics and diagnosis; 0 opens none", 0, 65_535)
    log_format: str = choice("auto", "log lines as text, json, or auto (text on a terminal, else json)", "text", "json")
    log_level: str = choice(
        "info", "lowest level of own log lines: debug, info, warning or error", "debug", "warning", "error"
    )
    max_body_bytes: int = setting(16 * 1024 * 1024, "largest request body in bytes; a larger one gets 413", 1)
    max_uploads_bytes: int = setting(256 * 1024 * 1024, "max bytes of all bodies that are arriving; beyond it 503", 1)
    http_max_connections: int = setting(20_000, "max open HTTP connections; further ones get 503", 1, _MANY)
    http_max_connections_per_address: int = setting(
        2_000, "max open HTTP and gRPC connections of one remote address; 0 is no limit", 0, _MANY
    )
    http_uncounted_addresses: str = checked(
        networks_of,
        "addresses or networks of reverse proxies without a limit per address, separated by commas",
        "127.0.0.1,::1",
    )
    http_max_head_bytes: int = setting(65_536, "max bytes of request target and headers; more get 431", 1_024, _LARGE)
    http_max_head_fields: int = setting(128, "max header fields of a request; more get 431", 8, 10_000)
    http_silence_ms: int = setting(
        30_000, "close a connection that is silent this long in a request, in ms", 100, _DAY_MS
    )
    http_head_ms: int = setting(30_000, "time limit in ms for the request target and headers to arrive", 100, _DAY_MS)
    http_body_ms: int = setting(600_000, "time limit in ms for a request body to arrive", 100, _DAY_MS)
    http_idle_ms: int = setting(75_000, "close a connection without a request after this time in ms", 100, _DAY_MS)
    http_stall_ms: int = setting(
        60_000, "close a connection whose client reads no answer for this time in ms", 100, _DAY_MS
    )
    queue_writes: int = setting(4_096, "max writes that wait for a commit; further ones get 503", 1)
    queue_bytes: int = setting(256 * 1024 * 1024, "max bytes of writes that wait for a commit; more get 503", 1)
    queue_principal_share: float = setting(
        0.5, "share of queue_writes and queue_bytes that one caller with a credential may hold; 1 is all", 0.01, 1
    )
    batch_writes: int = setting(512, "max writes in one transaction (group commit)", 1)
    sweep_interval_ms: int = setting(5_000, "time in ms between two sweeps for expired data", 10)
    shutdown_ms: int = setting(
        10_000, "time in ms for open requests to end at shutdown; whole seconds, at least one", 0
    )
    streams_long_poll_ms: int = setting(30_000, "longest wait of a long poll in ms; also pace of idle SSE events", 1)
    streams_sse_max_ms: int = setting(60_000, "end an SSE connection after this time in ms; the client reconnects", 1)
    streams_page_bytes: int = setting(1024 * 1024, "content of one read answer in bytes; one append is never split", 1)
    streams_max_messages: int = setting(100_000, "max messages of one append to a JSON stream; more get 413", 1)
    streams_idempotency_ttl_ms: int = setting(86_400_000, "time in ms that an Idempotency-Key is kept", 1)
    events_message_bytes: int = setting(1024 * 1024, "largest message or body in bytes, in both directions", 4_096)
    events_batch_items: int = setting(100, "max items in one submission", 1)
    events_in_flight_items: int = setting(
        200, "max items of one connection that wait for a commit; beyond it the connection is not read", 1
    )
    events_rate_messages: int = setting(0, "rate limit of one connection in messages a second; 0 is no limit", 0)
    events_bad_messages: int = setting(100, "close a connection after this number of malformed messages in a row", 1)
    events_idle_ms: int = setting(30_000, "close a connection without a heartbeat for this time in ms", 1)
    events_ping_ms: int = setting(20_000, "time in ms between two pings to clients that send no heartbeats", 1)
    events_slow_ms: int = setting(60_000, "close a connection whose client reads nothing for this time in ms", 1)
    events_buffer_bytes: int = setting(
        256 * 1024, "max unsent bytes of one connection; beyond it the client reads the log again", 1
    )
    events_validator: str = setting("", "module:callable or entry point that may reject events; empty is none")
    events_strict_types: bool = setting(False, "accept only the event types of the connection's profile")
    events_model_version: int = setting(0, "version of the application's model, sent to clients; 0 sends none", 0)
    events_retention_ms: int = setting(0, "keep events for this time in ms; 0 is for ever; ids are always kept", 0)
    jobs_idempotency_enabled: bool = setting(True, "honour the keys of jobs; if off, every submission is a new job")
    jobs_idempotency_ttl_sec: int = setting(86_400, "seconds that a key is kept after the end of its job", 1, _CENTURY)
    jobs_idempotency_max_cached_bytes: int = setting(
        16_384, "largest result in bytes in the answer to a repeated submission; 0 sends none", 0, _LARGE
    )
    jobs_idempotency_store_max_items: int = setting(200_000, "max keys that are kept; 0 is no limit", 0, _MANY)
    jobs_idempotency_store_max_items_per_principal: int = setting(0, "max keys of one caller; 0 is no limit", 0, _MANY)
    jobs_idempotency_full_policy: str = choice(
        "refuse", "at the limit of keys: refuse new ones, or evict_terminal: drop keys of ended jobs", "evict_terminal"
    )
    jobs_max_result_bytes: int = setting(
        1024 * 1024, "largest result of a job in bytes; a larger one gets 413", 1, _LARGE
    )
    jobs_retention_sec: int = setting(
        604_800, "seconds that ended jobs are kept; at least as long as keys", 0, _CENTURY
    )
    jobs_max_queue_depth: int = setting(
        1_000, "max jobs that wait for a worker; more are refused; 0 is no limit", 0, _MANY
    )
    jobs_max_queue_depth_per_principal: int = setting(0, "max waiting jobs of one caller; 0 is no limit", 0, _MANY)
    jobs_max_queue_depth_per_queue: int = setting(0, "max waiting jobs in one queue; 0 is no limit", 0, _MANY)
    jobs_max_scheduled: int = setting(
        100_000, "max jobs that wait for their time; more are refused; 0 is no limit", 0, _MANY
    )
    jobs_max_scheduled_per_principal: int = setting(0, "max scheduled jobs of one caller; 0 is no limit", 0, _MANY)
    jobs_max_scheduled_per_queue: int = setting(0, "max scheduled jobs in one queue; 0 is no limit", 0, _MANY)
    jobs_principal_share: float = setting(
        0.5, "share of these limits for one caller while others have jobs; 1 is all", 0, 1
    )
    jobs_max_inflight: int = setting(
        100, "max jobs that run at once; beyond it a claim gets none; 0 is no limit", 0, _MANY
    )
    jobs_lease_timeout_sec: int = setting(300, "end a lease without a heartbeat for this time in seconds", 1, 86_400)
    jobs_offer_sec: int = setting(
        5, "time in seconds to confirm jobs of a claim that waited; 0 needs no confirmation", 0, 60
    )
    jobs_queue_item_ttl_sec: int = setting(0, "seconds until a job fails that no worker took; 0 is never", 0, _CENTURY)
    jobs_retry_max_attempts: int = setting(5, "max runs of a job, the first included", 1, 100)
    jobs_retry_backoff_base_ms: int = setting(500, "wait in ms after the first failure; doubled each time", 0, _DAY_MS)
    jobs_retry_backoff_cap_ms: int = setting(15_000, "longest wait between two runs in ms", 0, _DAY_MS)
    jobs_retry_jitter: float = setting(0.1, "share of a wait by which it varies, from 0 to 1; 0 is no variation", 0, 1)
    jobs_backpressure_mode: str = choice(
        "429",
        "HTTP status at a limit (back pressure): 429 (drop and defer mean the same) or 503",
        "drop",
        "defer",
        "503",
    )
    jobs_dlq_enabled: bool = setting(True, "list failed jobs in the dead letter queue")
    jobs_dlq_max_items: int = setting(1_000, "max jobs in the dead letter queue; the oldest leave it", 1, _MANY)
    jobs_result_integrity_mode: str = choice("sha256", "proof of results: sha256 (hash) or hmac (signed)", "hmac")
    jobs_result_integrity_required: bool = setting(False, "refuse results without a hash or signature; hmac implies it")
    jobs_result_hmac_key: str = secret("the key that workers sign results with, for hmac")
    ledger_grpc_port: int = setting(
        -1, "TCP port of gRPC (semel[grpc]); 0 opens none, -1 opens 50051 if free", -1, 65_535
    )
    ledger_eviction_interval: int = setting(1_000, "log entries between two evictions, for new organizations", 1, _MANY)
    ledger_ttl_sec: int = setting(86_400, "seconds that new organizations remember commits and clients", 1, _CENTURY)
    ledger_fence: bool = setting(False, "new organizations keep the last sequence of every client for ever")
    ledger_hot_items: int = setting(
        100_000, "max answers in the replay cache, for full answers to gRPC retries", 1, _MANY
    )
    ledger_hot_sec: int = setting(86_400, "keep answers in the replay cache for this time in seconds", 1, _CENTURY)
    ledger_max_orgs: int = setting(10_000, "max organizations; 0 is no limit", 0, _MANY)
    ledger_max_vaults: int = setting(10_000, "max vaults of one organization; 0 is no limit", 0, _MANY)
    ledger_writes_per_sec: int = setting(
        0, "transactions a second of one organization (rate limit); 0 is no limit", 0, _MANY
    )
    ledger_max_operations: int = setting(1_000, "max operations of one transaction", 1, 1_000_000)
    ledger_max_payload_bytes: int = setting(100 * 1024 * 1024, "largest transaction: bytes of all keys and values", 1)
    ledger_max_key_bytes: int = setting(1_024, "largest key of an entity in bytes", 1, _LARGE)
    ledger_max_value_bytes: int = setting(
        1024 * 1024, "largest value of an entity in bytes; 0 allows only empty values", 0
    )
    ledger_max_resource_characters: int = setting(512, "longest resource or subject, in characters", 1, _LARGE)
    ledger_max_relation_characters: int = setting(64, "longest relation of a relationship in characters", 1, _LARGE)
    ledger_max_actor_characters: int = setting(128, "longest actor in characters", 1, _LARGE)
    ledger_node_id: str = setting("semel", "name of this node in block headers")
    deltas_max_body_bytes: int = setting(1024 * 1024, "largest body of a push in bytes", 1, 64 * 1024 * 1024)
    deltas_max_deltas: int = setting(10_000, "max deltas of one push", 1, 10_000)
    deltas_check_ids: bool = setting(
        True, "refuse deltas whose id is not the hash of their content; switch off for legacy data"
    )
    deltas_gateways: str = setting("", "names of allowed gateways, separated by commas; empty allows any name")
    deltas_max_gateways: int = setting(10_000, "max gateways; 0 is no limit", 0, _MANY)
    deltas_max_clients: int = setting(
        1_000_000, "max clients that push to one gateway; a further one gets 429", 1, _MANY
    )
    deltas_client_ttl_sec: int = setting(
        90 * 86_400, "forget a client inactive for this time in seconds; 0 is never", 0, _MANY
    )
    deltas_keep_log_sec: int = setting(
        0, "keep the log of a gateway behind its checkpoint for this time in seconds; 0 is for ever", 0, _MANY
    )
    deltas_pushes_per_sec: int = setting(0, "rate limit of one client in pushes a second; 0 is no limit", 0, _MANY)
    deltas_jwt_secret: str = secret("the secret (HS256) that JWTs of deltas clients are signed with")
    deltas_jwt_secret_next: str = secret("the successor of deltas_jwt_secret; both are accepted while it is set")
    deltas_live_bytes: int = setting(1024 * 1024, "max unsent bytes of one WebSocket of deltas", 1_024, _LARGE)
    deltas_max_sockets: int = setting(10_000, "max open WebSockets of deltas", 1, _MANY)
    deltas_answers_bytes: int = setting(256 * 1024 * 1024, "max bytes of all unsent answers of deltas", 2 * _LARGE)
    deltas_checkpoints_bytes: int = setting(
        4 * 1024 * 1024 * 1024, "max bytes of all checkpoint files that are being written or sent", _LARGE
    )
    crash_point: str = setting("", "crash tests only: kill the process at this point of the commit path")
    crash_one_in: int = setting(100, "crash tests only: kill on average once in this number of passes", 1)
    commit_delay_ms: int = setting(0, "overload tests only: extra time of each commit in ms", 0)

    @property
    def store_url(self) -> str:
        """Where the rows are kept."""
        return self.store or f"sqlite:{self.data}"

    @property
    def has_credentials(self) -> bool:
        """Whether any credential is configured."""
        return bool(self.tokens or self.jwt_keys or self.token_active)

    @property
    def needs_token(self) -> bool:
        """Whether a caller without any credential is refused."""
        return self.token_required in ("1", "true") if self.token_required else self.has_credentials

    @property
    def origin_policy(self) -> OriginPolicy:
        """Which web pages may call."""
        return make_policy(
            self.allowed_hosts, self.allowed_origins, is_open=not self.needs_token, is_loopback=self.is_loopback
        )

    @property
    def jobs_refusal_status(self) -> int:
        """The status of a refusal for lack of room."""
        return 503 if self.jobs_backpressure_mode == "503" else 429

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
    given: dict[str, Given] = {}
    for values in (_from_file(file), _from_environment(environment)):
        for name, one in values.items():
            if name not in known:
                raise SettingsError(f"There is no setting {one.place}; `semel serve --help` lists them.")
            given[name] = one
    given.update({name: Given(value, name) for name, value in flags.items() if value is not None})
    settings = Settings(**{name: convert(known[name], one) for name, one in given.items()})
    _check(settings)
    disagreements(environment)  # so that no variable that cannot be used is passed over
    if settings.jobs_result_integrity_mode == "hmac":
        settings = replace(settings, jobs_result_integrity_required=True)
    return settings


def _from_file(file: Path | None) -> dict[str, Given]:
    if file is None:
        return {}
    try:
        values = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"The configuration file {file} cannot be read: {error}") from error
    return {name: Given(value, name) for name, value in values.items()}


_ELSEWHERE = frozenset({"url", "token", "config"})
"""Variables of the command line client."""


def _from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    found: dict[str, Given] = {}
    for name, aliases in ALIASES.items():
        for alias in aliases:
            if alias in environment and name not in found:
                found[name] = Given(environment[alias], alias)
    for variable, value in environment.items():
        name = variable[len(PREFIX) :].lower()
        if variable.startswith(PREFIX) and name not in _ELSEWHERE:
            found[name] = Given(value, variable)
    return found


def disagreements(environment: Mapping[str, str]) -> list[str]:
    """A warning for each setting whose variables have different values, with their names and no value.

    A variable whose value is invalid raises, even if another one wins: its value was certainly a mistake.
    """
    told = []
    known = {one.name: one for one in fields(Settings)}
    for name in ALIASES:
        named = set_for(name, PREFIX + name.upper(), environment)
        meant = [convert(known[name], Given(one.value, one.variable)) for one in named]
        ignored = [one.variable for one, value in zip(named, meant, strict=True) if value != meant[0]]
        if ignored:
            told.append(f"{named[0].variable} is used; {' and '.join(ignored)} says otherwise and is ignored.")
    return told


def _check(settings: Settings) -> None:
    if settings.port and settings.port == settings.control_port:
        raise SettingsError(f"port and control_port are both {settings.port}; the second listener needs its own.")
    if settings.jobs_result_integrity_mode == "hmac" and not settings.jobs_result_hmac_key:
        raise SettingsError("jobs_result_integrity_mode is hmac: give the key with jobs_result_hmac_key.")
    if settings.jobs_result_hmac_key and settings.jobs_result_hmac_key in (settings.token_active, settings.token_next):
        raise SettingsError(
            "jobs_result_hmac_key is also a token: its holders could sign results; give the key a value of its own."
        )
    _check_jwt(settings)
    _check_tokens(settings)
    _check_allowed(settings)
    if not settings.is_loopback and not settings.has_credentials and not settings.insecure:
        raise SettingsError(
            f"Listening on {settings.host} without credentials would let anyone write: give a token file with "
            "--tokens, a key file with --jwt-keys or a token in SEMEL_TOKEN_ACTIVE, or --insecure if the network is "
            "closed."
        )


def _check_tokens(settings: Settings) -> None:
    for name in ("token_active", "token_next"):
        token = getattr(settings, name)
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise SettingsError(f"{name} cannot be sent in a header: it is ASCII without spaces.")
    if settings.token_next and not settings.token_active:
        raise SettingsError("token_next follows token_active: give both.")
    if settings.deltas_jwt_secret_next and not settings.deltas_jwt_secret:
        raise SettingsError("deltas_jwt_secret_next follows deltas_jwt_secret: give both.")
    if settings.token_rotation_until and not settings.token_next:
        raise SettingsError("token_rotation_until ends the life of token_active: give token_next, which follows it.")
    if settings.token_required and settings.needs_token and not settings.has_credentials:
        raise SettingsError("token_required is set, and there is no token: give tokens, jwt_keys or token_active.")
    if settings.token_required and not settings.needs_token and not settings.is_loopback:
        raise SettingsError(f"token_required can be switched off on loopback only, not on {settings.host}.")


def _check_allowed(settings: Settings) -> None:
    for name in ("allowed_hosts", "allowed_origins"):
        if not settings.needs_token and "*" in [item.strip() for item in getattr(settings, name).split(",")]:
            raise SettingsError(f"{name} can be * only where callers need a credential; name those to be allowed.")


def _check_jwt(settings: Settings) -> None:
    for name in settings.jwt_algorithm_names:
        if name not in JWT_ALGORITHMS:
            known = ", ".join(JWT_ALGORITHMS)
            raise SettingsError(f"jwt_algorithms names algorithms with commas between, of {known}; not {name!r}.")
    if not settings.jwt_keys and (settings.jwt_issuer or settings.jwt_audience):
        raise SettingsError("jwt_issuer and jwt_audience speak of JWTs: give their keys with jwt_keys.")

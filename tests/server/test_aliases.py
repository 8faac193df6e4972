"""Variables of an earlier system go on working; a mistake in one stops the start and does not show its value."""

from __future__ import annotations

import pytest

from semel.server.setting_values import is_secret
from semel.server.settings import ServerSettings, settings_of
from semel.server.settings_loader import ALIASES, PREFIX, SettingsError, disagreements, load_settings, setting_fields
from semel.surfaces.jobs.settings import JobsSettings


def jobs_of(settings: ServerSettings) -> JobsSettings:
    return settings_of(settings, JobsSettings)


SECRET = "a-value-nobody-may-see"


OTHER_NAMES = """
IDEMPOTENCY_ENABLED IDEMPOTENCY_TTL_SEC IDEMPOTENCY_MAX_CACHED_BYTES IDEMPOTENCY_STORE_MAX_ITEMS MAX_QUEUE_DEPTH
MAX_INFLIGHT LEASE_TIMEOUT_SEC LEASE_TIMEOUT QUEUE_ITEM_TTL_SEC RETRY_MAX_ATTEMPTS RETRY_BACKOFF_BASE_MS
RETRY_BASE_DELAY_MS RETRY_BACKOFF_CAP_MS BACKPRESSURE_MODE DLQ_ENABLED DLQ_MAX_ITEMS RESULT_INTEGRITY_MODE
RESULT_INTEGRITY RESULT_INTEGRITY_REQUIRED RESULT_HMAC_KEY HUB_TOKEN_ACTIVE HUB_TOKEN HUB_TOKEN_NEXT
HUB_TOKEN_ROTATION_UNTIL HUB_TOKEN_REQUIRED
"""


def test_the_other_names_are_those_of_the_earlier_system_and_no_more() -> None:
    variables = [variable for aliases in ALIASES.values() for variable in aliases]
    assert sorted(variables) == sorted(f"SHERATAN_{name}" for name in OTHER_NAMES.split())


def example(name: str) -> tuple[str, object]:
    """A value that no setting has by default, as text and as what it means."""
    one = {one.name: one for one in setting_fields()}[name]
    if one.type == "bool":
        return str(int(not one.default)), not one.default
    if one.type == "str":
        choices = one.metadata.get("choices", ("", "2030-01-31T12:00:00Z"))
        return choices[1], choices[1]
    return ("0.5", 0.5) if one.type == "float" else ("7", 7)


@pytest.mark.parametrize(
    ("name", "alias"), [(name, alias) for name, aliases in ALIASES.items() for alias in aliases], ids=lambda text: text
)
def test_an_alias_alone_is_effective(name: str, alias: str) -> None:
    text, meant = example(name)
    others = {"SEMEL_TOKEN_ACTIVE": "a", "SEMEL_TOKEN_NEXT": "b"} if name == "token_rotation_until" else {}
    if name == "token_next":
        others = {"SEMEL_TOKEN_ACTIVE": "a"}
    if name == "jobs_result_integrity_mode":
        others = {"SHERATAN_RESULT_HMAC_KEY": "k"}
    assert getattr(load_settings({}, {alias: text, **others}, None), name) == meant
    assert disagreements({alias: text}) == []


def test_our_own_name_wins_and_the_warning_shows_no_value() -> None:
    both = {"SEMEL_TOKEN_ACTIVE": SECRET, "SHERATAN_HUB_TOKEN": SECRET + "2", "SHERATAN_MAX_INFLIGHT": "7"}
    settings = load_settings({}, both, None)
    assert (settings.token_active, jobs_of(settings).jobs_max_inflight) == (SECRET, 7)
    (warning,) = disagreements(both)
    assert "SEMEL_TOKEN_ACTIVE" in warning
    assert "SHERATAN_HUB_TOKEN" in warning
    assert SECRET not in warning


def test_the_stronger_alias_wins_over_the_other() -> None:
    both = {"SHERATAN_LEASE_TIMEOUT": "3", "SHERATAN_LEASE_TIMEOUT_SEC": "4"}
    assert jobs_of(load_settings({}, both, None)).jobs_lease_timeout_sec == 4
    (warning,) = disagreements(both)
    assert warning.startswith("SHERATAN_LEASE_TIMEOUT_SEC")


def test_variables_that_mean_the_same_are_no_disagreement() -> None:
    same = {"SEMEL_JOBS_DLQ_ENABLED": "true", "SHERATAN_DLQ_ENABLED": "1", "SHERATAN_RETRY_BACKOFF_CAP_MS": "07"}
    assert disagreements(same | {"SEMEL_JOBS_RETRY_BACKOFF_CAP_MS": "7"}) == []


def test_flags_win_over_aliases_and_aliases_over_the_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("file") / "semel.toml"
    file.write_text("jobs_max_inflight = 1\njobs_max_queue_depth = 1\njobs_backpressure_mode = 503\n")
    environment = {"SHERATAN_MAX_INFLIGHT": "2", "SHERATAN_MAX_QUEUE_DEPTH": "2"}
    settings = jobs_of(load_settings({"jobs_max_inflight": "3"}, environment, file))
    assert (settings.jobs_max_inflight, settings.jobs_max_queue_depth) == (3, 2)
    assert settings.jobs_refusal_status == 503


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"SHERATAN_LEASE_TIMEOUT": "soon"}, "SHERATAN_LEASE_TIMEOUT"),
        ({"SEMEL_JOBS_LEASE_TIMEOUT_SEC": "5", "SHERATAN_LEASE_TIMEOUT": "soon"}, "SHERATAN_LEASE_TIMEOUT"),
        ({"SEMEL_JOBS_LEASE_TIMEOUT_SEC": "86401"}, "SEMEL_JOBS_LEASE_TIMEOUT_SEC"),
        ({"SEMEL_JOBS_IDEMPOTENCY_TTL_SEC": "0"}, "SEMEL_JOBS_IDEMPOTENCY_TTL_SEC"),
        ({"SEMEL_JOBS_RETRY_JITTER": "nan"}, "SEMEL_JOBS_RETRY_JITTER"),
        ({"SEMEL_JOBS_RETRY_JITTER": "1.5"}, "SEMEL_JOBS_RETRY_JITTER"),
        ({"SEMEL_JOBS_RETRY_JITTER": "-0.1"}, "SEMEL_JOBS_RETRY_JITTER"),
        ({"SEMEL_JOBS_RETRY_MAX_ATTEMPTS": "101"}, "SEMEL_JOBS_RETRY_MAX_ATTEMPTS"),
        ({"SEMEL_JOBS_BACKPRESSURE_MODE": "418"}, "SEMEL_JOBS_BACKPRESSURE_MODE"),
        ({"SHERATAN_DLQ_ENABLED": "perhaps"}, "SHERATAN_DLQ_ENABLED"),
        ({"SEMEL_JOBS_IDEMPOTENCY_FULL_POLICY": "forget"}, "SEMEL_JOBS_IDEMPOTENCY_FULL_POLICY"),
        ({"SHERATAN_RESULT_INTEGRITY": "md5"}, "SHERATAN_RESULT_INTEGRITY"),
        ({"SEMEL_JOBS_RESULT_INTEGRITY_MODE": "hmac"}, "jobs_result_hmac_key"),
        ({"SHERATAN_HUB_TOKEN_ROTATION_UNTIL": "2030-01-31T12:00:00"}, "SHERATAN_HUB_TOKEN_ROTATION_UNTIL"),
        ({"SEMEL_TOKEN_ACTIVE": "a", "SEMEL_TOKEN_ROTATION_UNTIL": "2030-01-31T12:00:00Z"}, "token_next"),
        ({"SEMEL_TOKEN_NEXT": "a"}, "token_active"),
        ({"SEMEL_DELTAS_JWT_SECRET_NEXT": "a"}, "deltas_jwt_secret"),
        ({"SEMEL_TOKEN_REQUIRED": "1"}, "token_required"),
        ({"SEMEL_TOKEN_REQUIRED": "0", "SEMEL_TOKEN_ACTIVE": "a", "SEMEL_HOST": "0.0.0.0"}, "loopback"),
        ({"SEMEL_CONTROL_PORT": "8788"}, "control_port"),
        ({"SEMEL_CONTROL_PORT": "65536"}, "SEMEL_CONTROL_PORT"),
    ],
)
def test_a_value_that_cannot_be_used_stops_the_start(environment: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load_settings({}, environment, None)


@pytest.mark.parametrize("value", [f"{SECRET} {SECRET}", f"{SECRET}é", f"{SECRET}\n"])
@pytest.mark.parametrize("name", ["token_active", "token_next"])
def test_a_secret_is_never_shown(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as told:
        load_settings({}, {"SEMEL_TOKEN_ACTIVE": "a", PREFIX + name.upper(): value}, None)
    assert SECRET not in str(told.value)
    assert name in str(told.value)


def test_a_secret_of_the_wrong_type_is_not_shown_either(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("file") / "semel.toml"
    file.write_text(f'jobs_result_hmac_key = ["{SECRET}"]\n')
    with pytest.raises(SettingsError) as told:
        load_settings({}, {}, file)
    assert SECRET not in str(told.value)


def test_settings_can_be_printed() -> None:
    names = [one.name for one in setting_fields() if is_secret(one)]
    of_deltas = ["deltas_jwt_secret", "deltas_jwt_secret_next"]
    assert names == ["token_active", "token_next", "jobs_result_hmac_key", *of_deltas]
    environment = {PREFIX + name.upper(): f"{SECRET}-{name}" for name in names}
    assert SECRET not in repr(load_settings({}, environment, None))


def test_proof_by_signature_is_never_optional() -> None:
    environment = {"SHERATAN_RESULT_INTEGRITY": "hmac", "SHERATAN_RESULT_HMAC_KEY": "k"}
    settings = jobs_of(load_settings({}, environment | {"SEMEL_JOBS_RESULT_INTEGRITY_REQUIRED": "0"}, None))
    assert settings.jobs_result_integrity_required


@pytest.mark.parametrize(
    ("environment", "needs"),
    [
        ({}, False),
        ({"SEMEL_TOKEN_ACTIVE": "a"}, True),
        ({"SEMEL_TOKEN_ACTIVE": "a", "SEMEL_HOST": "0.0.0.0"}, True),
        ({"SEMEL_TOKEN_ACTIVE": "a", "SEMEL_TOKEN_REQUIRED": "false"}, False),
        ({"SEMEL_TOKENS": "t", "SHERATAN_HUB_TOKEN_REQUIRED": "1"}, True),
    ],
)
def test_who_needs_a_token(environment: dict[str, str], needs: bool) -> None:
    assert load_settings({}, environment, None).needs_token is needs

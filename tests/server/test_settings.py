"""Settings come from flags, variables and a file, in this order, and mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from semel.server.settings import settings_of
from semel.server.settings_loader import SettingsError, load_settings
from semel.surfaces.streams.settings import StreamsSettings
from tests.harness.serve_with_faults import VARIABLES


def test_defaults_are_safe() -> None:
    settings = load_settings({}, {}, None)
    assert (settings.host, settings.port, settings.is_loopback) == ("127.0.0.1", 8788, True)


def test_flags_win_over_variables_and_variables_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "semel.toml"
    file.write_text('port = 1\nqueue_writes = 2\nlog_level = "error"\n')
    settings = load_settings({"port": "3", "data": None}, {"SEMEL_QUEUE_WRITES": "4", "SEMEL_PORT": "5"}, file)
    assert (settings.port, settings.queue_writes, settings.log_level) == (3, 4, "error")


def test_the_long_poll_setting_has_its_documented_name() -> None:
    settings = settings_of(load_settings({}, {"SEMEL_STREAMS_LONG_POLL_MS": "250"}, None), StreamsSettings)
    assert settings.streams_long_poll_ms == 250


@pytest.mark.parametrize(
    ("flags", "environment", "says"),
    [
        ({}, {"SEMEL_PROT": "1"}, "SEMEL_PROT"),
        ({"port": "many"}, {}, r"port .* 'many' is not valid: give a whole number from 0 to 65535\."),
        ({"port": "65536"}, {}, "65536"),
        ({"port": "-1"}, {}, "port"),
        ({"queue_writes": "0"}, {}, "queue_writes .* from 1"),
        ({"log_level": "loud"}, {}, "log_level .*: give one of info, "),
        ({"log_format": "xml"}, {}, "log_format"),
        ({"host": "0.0.0.0"}, {}, "--tokens"),
        ({"host": "localhost.example.com"}, {}, "--tokens"),
        ({"host": "127.example.com"}, {}, "--tokens"),
        ({"host": "::1ff"}, {}, "--tokens"),
        ({}, {"SEMEL_INSECURE": "perhaps"}, "insecure .*: give true or false"),
        ({}, {"SEMEL_TOKEN_ACTIVE": "t", "SEMEL_JOBS_RESULT_HMAC_KEY": "t"}, "a value of its own"),
    ],
)
def test_mistakes_are_told(flags: dict[str, str], environment: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load_settings(flags, environment, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.9", "::1", "localhost"])
def test_loopback_needs_no_credentials(host: str) -> None:
    assert load_settings({"host": host}, {}, None).is_loopback


def test_half_a_number_is_no_number(tmp_path: Path) -> None:
    file = tmp_path / "semel.toml"
    file.write_text("port = 8788.9\n")
    with pytest.raises(SettingsError, match="port"):
        load_settings({}, {}, file)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("port = = 1")
    for file in (broken, tmp_path / "missing.toml"):
        with pytest.raises(SettingsError, match=file.name):
            load_settings({}, {}, file)


def test_listening_beyond_loopback_can_be_insisted_on() -> None:
    assert load_settings({"host": "::", "insecure": True}, {}, None).insecure


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_variables_of_faults_are_no_settings(variable: str) -> None:
    """The faults of tests are not in the product: a server that is given their variables does not start."""
    with pytest.raises(SettingsError, match=f"There is no setting {variable}"):
        load_settings({}, {variable: "1"}, None)

"""Credentials in the settings: what is said of settings and files that cannot be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from semel.server.settings_loader import SettingsError, load_settings
from tests.server.auth import signing


def test_keys_or_tokens_allow_listening_beyond_loopback() -> None:
    assert load_settings({"host": "0.0.0.0", "jwt_keys": "keys.json"}, {}, None).has_credentials
    assert load_settings({"host": "0.0.0.0"}, {"SEMEL_JWT_KEYS": "keys.json"}, None).has_credentials
    with pytest.raises(SettingsError, match="--jwt-keys"):
        load_settings({"host": "0.0.0.0"}, {}, None)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"jwt_keys": "k", "jwt_algorithms": "HS256,none"}, "none"),
        ({"jwt_keys": "k", "jwt_algorithms": ""}, "jwt_algorithms"),
        ({"jwt_keys": "k", "jwt_algorithms": "hs256"}, "hs256"),
        ({"jwt_keys": "k", "jwt_algorithms": "RS512"}, "RS512"),
        ({"jwt_issuer": "https://issuer"}, "jwt_keys"),
        ({"jwt_audience": "semel"}, "jwt_keys"),
    ],
)
def test_mistakes_in_the_settings_are_told(flags: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load_settings(flags, {}, None)


def test_algorithms_may_have_spaces_between() -> None:
    settings = load_settings({"jwt_keys": "k", "jwt_algorithms": "ES256, EdDSA"}, {}, None)
    assert settings.jwt_algorithm_names == ("ES256", "EdDSA")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read"),
        ("", "is not a JWK set in JSON"),
        (json.dumps({"keys": []}), "has no key for"),
        (json.dumps({"keys": [signing.oct_jwk(b"short")]}), "too short"),
    ],
    ids=["missing", "empty", "no keys", "weak"],
)
def test_a_broken_key_file_is_one_line_and_no_start(tmp_path: Path, text: str | None, says: str) -> None:
    file = tmp_path / "keys.json"
    if text is not None:
        file.write_text(text)
    data = tmp_path / "data"
    command = [sys.executable, "-m", "semel", "serve", "--port", "0", "--data", str(data), "--jwt-keys", str(file)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("SEMEL_")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert says in done.stderr
    assert str(file) in done.stderr
    assert not data.exists()

"""Credentials over a real server: what a JWT may do to streams, and what is said of files that cannot be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from semel.server.settings_loader import SettingsError, load_settings
from tests.harness.server import RunningServer
from tests.server.auth import signing
from tests.server.auth.signing import good_token, write_keys

JSON = {"Content-Type": "application/json"}
HOUR = 3_600
SERVICE = "token-of-a-service"


def token_file(folder: Path) -> Path:
    file = folder / "tokens.toml"
    file.write_text(f'[[token]]\nname = "service"\nsha256 = "{sha256(SERVICE.encode()).hexdigest()}"\n')
    return file


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("credentials")
    env = {
        "SEMEL_TOKENS": str(token_file(folder)),
        "SEMEL_JWT_KEYS": str(write_keys(folder / "keys.json")),
        "SEMEL_JWT_AUDIENCE": "semel",
        "SEMEL_LOG_LEVEL": "debug",
    }
    with RunningServer(folder / "data", env=env) as running:
        yield running


def jwt(algorithm: str = "HS256", /, **claims: object) -> str:
    return good_token({"sub": "ada", "aud": "semel", "exp": time.time() + HOUR} | claims, algorithm).decode()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("algorithm", ["HS256", "RS256", "ES256", "EdDSA"])
def test_a_jwt_reads_and_writes_streams(server: RunningServer, algorithm: str) -> None:
    url = f"{server.url}/v1/stream/jwt/{algorithm}"
    sent = bearer(jwt(algorithm))
    assert httpx.put(url, headers=JSON | sent).status_code == 201
    for _ in range(3):
        assert httpx.post(url, json=1, headers=sent | {"Idempotency-Key": "once"}).status_code == 204
    assert httpx.get(url, headers=sent).json() == [1]


def test_a_token_of_the_file_works_beside_them(server: RunningServer) -> None:
    assert httpx.put(f"{server.url}/v1/stream/service", headers=JSON | bearer(SERVICE)).status_code == 201


@pytest.fixture(scope="module")
def stream(server: RunningServer) -> str:
    url = f"{server.url}/v1/stream/guarded"
    assert httpx.put(url, headers=JSON | bearer(SERVICE), json=[1]).status_code == 201
    return url


FORBIDDEN: dict[str, tuple[dict[str, object], bool]] = {
    "reader": ({"role": "read"}, True),
    "no known role": ({"role": "king"}, False),
    "no role": ({"role": []}, False),
    "worker": ({"role": "work"}, False),
    "limited to partitions": ({"allowed_partitions": ["guarded"]}, False),
    "limited to prefixes": ({"allowed_partition_prefixes": [""]}, False),
    "limited to nothing": ({"allowed_partitions": []}, False),
    "limited to a gateway": ({"gw": "guarded"}, False),
    "limited to an organization": ({"org": "guarded", "role": "admin"}, False),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_limited_jwt_is_forbidden_the_rest(server: RunningServer, stream: str, name: str) -> None:
    claims, may_read = FORBIDDEN[name]
    sent = bearer(jwt(**claims))
    for answer in (
        httpx.post(stream, json=2, headers=sent),
        httpx.put(stream, headers=JSON | sent),
        httpx.delete(stream, headers=sent),
        *(() if may_read else (httpx.get(stream, headers=sent),)),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
    assert httpx.get(stream, headers=bearer(SERVICE)).json() == [1]


def test_a_listing_shows_a_limited_jwt_nothing(server: RunningServer, stream: str) -> None:
    listing = f"{server.url}/v1/streams"
    assert httpx.get(listing, headers=bearer(jwt(allowed_partitions=["guarded"]))).json()["streams"] == []
    assert "guarded" in [one["name"] for one in httpx.get(listing, headers=bearer(jwt(role="read"))).json()["streams"]]


def test_metrics_need_a_credential_whatever_its_limits(server: RunningServer) -> None:
    metrics = f"{server.url}/metrics"
    assert httpx.get(metrics).status_code == 401
    for sent in (jwt(), jwt(allowed_partitions=["guarded"]), jwt(allowed_partitions=["guarded"], role="admin")):
        assert httpx.get(metrics, headers=bearer(sent)).status_code == 200


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "expired": ({"exp": 1}, "This token has expired."),
    "not yet": ({"nbf": time.time() + HOUR}, "This token is not valid yet."),
    "for others": ({"aud": "others"}, "This token is not accepted here."),
    "without an end": ({"exp": None}, "This token is not accepted here."),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("path", ["/v1/stream/guarded", "/v1/streams", "/metrics"])
def test_a_refused_jwt_is_401_with_one_sentence(server: RunningServer, path: str, name: str) -> None:
    claims, says = REFUSED[name]
    answer = httpx.get(server.url + path, headers=bearer(jwt(**claims)))
    assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (401, "UNAUTHORIZED", says)
    assert answer.headers["WWW-Authenticate"] == f'Bearer error="invalid_token", error_description="{says}"'


def test_a_forged_jwt_writes_nothing(server: RunningServer, stream: str) -> None:
    head, claims, end = jwt("RS256").split(".")
    for sent in (f"{head}.{claims}.", f"{head}.{claims}.{end[::-1]}", f"{head}.{claims}"):
        assert httpx.post(stream, json=2, headers=bearer(sent)).status_code == 401
    assert httpx.get(stream, headers=bearer(SERVICE)).json() == [1]


def test_nothing_of_a_jwt_reaches_the_log(server: RunningServer, stream: str) -> None:
    tokens = [jwt(), jwt(exp=1), jwt(aud="others"), jwt("EdDSA", sub="name-to-be-kept-secret"), jwt()[:-5] + "AAAAA"]
    for sent in tokens:
        httpx.get(stream, headers=bearer(sent))
        httpx.post(stream, content=b"{", headers=JSON | bearer(sent))
    log = server.output.read_text()
    words = {part for sent in tokens for part in sent.split(".")} | {"name-to-be-kept-secret"}
    assert [word for word in words if word in log] == []


def test_nothing_of_a_jwt_that_comes_over_a_websocket_reaches_the_log(server: RunningServer) -> None:
    """Neither from the handshake nor from the message, even where a library would log its frames."""
    sent, in_header = jwt(jti="sent"), jwt(jti="in the header")
    payload = {"token": sent, "client_id": "ada"}
    message = {"type": "connect", "msg_id": "1", "timestamp": 1, "protocol_version": "1.0", "payload": payload}
    url = server.url.replace("http", "ws") + "/v1/events"
    with connect(url, additional_headers=bearer(in_header)) as socket:
        socket.send(json.dumps(message))
        assert json.loads(socket.recv())["type"] == "connected"
    log = server.output.read_text()
    assert [part for part in (*sent.split("."), *in_header.split(".")) if part in log] == []
    assert "protocol_version" not in log


def test_a_key_that_is_added_is_taken_without_a_restart(tmp_path: Path) -> None:
    file = write_keys(tmp_path / "keys.json", signing.oct_jwk() | {"kid": "hs256"})
    claims = {"sub": "ada", "exp": time.time() + HOUR}
    with RunningServer(tmp_path / "data", env={"SEMEL_JWT_KEYS": str(file)}) as running:
        url = f"{running.url}/v1/stream/rotated"
        assert httpx.put(url, headers=JSON | bearer(good_token(claims).decode())).status_code == 201
        sent = bearer(good_token(claims, "EdDSA").decode())
        assert httpx.get(url, headers=sent).status_code == 401
        renewed = write_keys(tmp_path / "renewed.json", signing.ed_jwk(signing.ed_key()) | {"kid": "eddsa"})
        renewed.rename(file)
        deadline = time.monotonic() + 30
        while httpx.get(url, headers=sent).status_code == 401 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert httpx.get(url, headers=sent).status_code == 200
        assert httpx.get(url, headers=bearer(good_token(claims).decode())).status_code == 401


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

"""TLS by certificate files: served, replaced by SIGHUP, and never lost to a file that cannot be used."""

from __future__ import annotations

import http
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from semel.server.http.tls import HTTP, Tls, TlsFileError
from semel.server.settings_loader import SettingsError, load_settings, make_settings
from tests.harness.server import HOST, PROBE_SECONDS, RunningServer
from tests.harness.together import eventually


class Files:
    """A certificate for 127.0.0.1 and its key, signed by itself."""

    def __init__(self, folder: Path) -> None:
        self.certificate = folder / "certificate.pem"
        self.key = folder / "key.pem"

    def write(self, serial: int, password: bytes | None = None) -> None:
        """Make a new pair with this serial number."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "semel test")])
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(name, name, key.public_key(), serial).not_valid_before(
            now - timedelta(days=1)
        )
        alternatives = x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))])
        made = builder.not_valid_after(now + timedelta(days=1)).add_extension(alternatives, critical=False)
        encryption = (
            serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
        )
        self.certificate.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        self.key.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )

    @property
    def env(self) -> dict[str, str]:
        """The settings that name them."""
        return {"SEMEL_TLS_CERTIFICATE": str(self.certificate), "SEMEL_TLS_KEY": str(self.key)}


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.write(1_001)
    return made


def trusting_anyone() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class SecureServer(RunningServer):
    """A server that speaks TLS."""

    @property
    def url(self) -> str:
        """The base URL."""
        return f"https://{HOST}:{self.port}"

    def fetch(self, path: str, context: ssl.SSLContext | None = None) -> tuple[int, bytes]:
        """Status and body."""
        caller = http.client.HTTPSConnection(
            HOST, self.port, timeout=PROBE_SECONDS, context=context or trusting_anyone()
        )
        try:
            caller.request("GET", path)
            answer = caller.getresponse()
            return answer.status, answer.read()
        finally:
            caller.close()

    def _is_ready(self) -> bool:
        try:
            return self.fetch("/readyz")[0] == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False

    def serial(self, port: int = 0) -> int:
        """The serial number of the certificate that a new connection is shown."""
        with (
            socket.create_connection((HOST, port or self.port), PROBE_SECONDS) as plain,
            trusting_anyone().wrap_socket(plain) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number

    def log(self) -> list[dict[str, object]]:
        """Lines so far."""
        return [json.loads(line) for line in self.output.read_text().splitlines() if line.startswith("{")]

    def hang_up(self, words: str) -> None:
        """Send SIGHUP and wait for a line with these words."""
        before = self._told(words)
        os.kill(self.pid, signal.SIGHUP)
        eventually(lambda: self._told(words) > before, words)

    def _told(self, words: str) -> int:
        return sum(words in str(line["message"]) for line in self.log())


@pytest.fixture
def server(tmp_path: Path, files: Files) -> Iterator[SecureServer]:
    env = {"SEMEL_STORE": "memory:", "SEMEL_LOG_FORMAT": "json", **files.env}
    with SecureServer(tmp_path / "data", env=env, grpc=True) as running:
        yield running


def test_requests_are_served_over_tls_to_a_client_that_verifies(server: SecureServer, files: Files) -> None:
    context = ssl.create_default_context(cafile=str(files.certificate))
    assert server.fetch("/livez", context)[0] == 200
    assert f"https://{HOST}:{server.port}" in server.output.read_text()  # the banner


def test_location_says_https(server: SecureServer) -> None:
    caller = http.client.HTTPSConnection(HOST, server.port, context=trusting_anyone())
    caller.request("PUT", "/v1/stream/s", headers={"Content-Type": "text/plain"})
    assert caller.getresponse().getheader("Location") == f"{server.url}/v1/stream/s"
    caller.close()


def test_plain_http_is_not_served_where_tls_is(server: SecureServer) -> None:
    with socket.create_connection((HOST, server.port), PROBE_SECONDS) as plain:
        plain.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(ConnectionResetError):
            assert b"200" not in plain.recv(1_024)
    assert server.fetch("/livez")[0] == 200


def test_sighup_takes_a_new_certificate_and_open_connections_go_on(server: SecureServer, files: Files) -> None:
    caller = http.client.HTTPSConnection(HOST, server.port, context=trusting_anyone())
    caller.request("GET", "/livez")
    assert (caller.getresponse().read() is not None, server.serial()) == (True, 1_001)
    files.write(1_002)
    server.hang_up("the TLS certificate was read again")
    assert (server.serial(), server.serial(server.grpc_port)) == (1_002, 1_002)
    caller.request("GET", "/livez")
    assert caller.getresponse().status == 200
    caller.close()


def test_sighup_with_a_broken_file_keeps_the_certificate(server: SecureServer, files: Files) -> None:
    whole = files.certificate.read_bytes()
    for broken in (b"", whole[:200], b"no certificate"):
        files.certificate.write_bytes(broken)
        server.hang_up("the TLS certificate is invalid")
        assert server.serial() == 1_001
    files.certificate.unlink()
    server.hang_up("the TLS certificate is invalid")
    assert server.fetch("/livez")[0] == 200
    assert server.log()[-2]["level"] == "error" or server.log()[-1]["level"] == "error"


# ---- Files that cannot be used ----


def test_files_that_cannot_be_used_are_told_in_a_sentence(tmp_path: Path, files: Files) -> None:
    other = Files(tmp_path / "other")
    other.certificate.parent.mkdir()
    other.write(7)
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    for certificate, key, words in (
        (tmp_path / "none.pem", files.key, "tls_certificate: cannot read"),
        (files.certificate, tmp_path / "none.pem", "tls_key: cannot read"),
        (files.certificate, other.key, "is not the key of the certificate"),
        (wrong, files.key, "cannot be used"),
        (files.certificate, wrong, "cannot be used"),
    ):
        with pytest.raises(TlsFileError, match=words):
            Tls(str(certificate), str(key))


def test_a_key_with_a_password_is_refused_and_not_asked_for(files: Files) -> None:
    files.write(8, b"secret")
    with pytest.raises(TlsFileError, match="the key has a password"):
        Tls(str(files.certificate), str(files.key))


def test_a_context_speaks_tls_1_2_and_more(files: Files) -> None:
    context = Tls(str(files.certificate), str(files.key)).context(HTTP)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_certificate_and_key_belong_together() -> None:
    assert make_settings().tls_certificate == ""
    for name in ("SEMEL_TLS_CERTIFICATE", "SEMEL_TLS_KEY"):
        with pytest.raises(SettingsError, match="belong together"):
            load_settings({}, {name: "a.pem"}, None)


def test_a_server_with_a_bad_certificate_does_not_open_its_store(tmp_path: Path, files: Files) -> None:
    files.certificate.write_text("nothing")
    env = {**os.environ, **files.env}
    command = [sys.executable, "-m", "semel", "serve", "--port", "0", "--data", str(tmp_path / "data")]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, (tmp_path / "data").exists()) == (1, False)
    assert "tls_certificate and tls_key" in ended.stderr
    assert "Traceback" not in ended.stderr

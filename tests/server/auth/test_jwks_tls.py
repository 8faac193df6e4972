"""Keys of JWTs from an https URL: a real handshake with a certificate that is good, or wrong in one way."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from semel.server.auth.credentials import read_principals
from semel.server.auth.jwks_url import KeyUrl, fetch_keys
from semel.server.auth.jwt_claims import KeyFileError
from semel.server.settings_loader import SettingsError, load_settings
from semel.surfaces.registry import SCOPE_RULES
from tests.harness.server import HOST, RunningServer
from tests.server.auth.key_server import KeyServer, signed

DAY = timedelta(days=1)


class TestCa:
    """A certificate authority; `file` has its own certificate."""

    __test__ = False

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.pem"
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        own = self._signed(self._name, self._key, now - 9 * DAY, now + 9 * DAY, x509.BasicConstraints(True, None))
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def certificate(self, host: str = HOST, begins: timedelta = -2 * DAY, ends: timedelta = 2 * DAY) -> Path:
        """A file with a new certificate for a host, and its key."""
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
        kind = x509.IPAddress(ip_address(host)) if host == HOST else x509.DNSName(host)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
        names = x509.SubjectAlternativeName([kind])
        made = self._signed(name, key, now + begins, now + ends, names)
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file = self._folder / f"{made.serial_number}.pem"
        file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*form))
        return file

    def _signed(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        begins: datetime,
        ends: datetime,
        extension: x509.ExtensionType,
    ) -> x509.Certificate:
        number = x509.random_serial_number()
        made = x509.CertificateBuilder(self._name, name, key.public_key(), number, begins, ends)
        return made.add_extension(extension, critical=False).sign(self._key, hashes.SHA256())


class Site:
    """A TLS server of keys, the authority that is trusted, and another one."""

    def __init__(self, folder: Path) -> None:
        self.trusted, self.other = TestCa(folder, "trusted"), TestCa(folder, "other")
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.show(self.trusted.certificate())
        self.server = KeyServer(self._tls)

    def show(self, certificate: Path) -> None:
        """Use another certificate from the next handshake on."""
        self._tls.load_cert_chain(certificate)

    def fetch(self, host: str = HOST) -> str:
        """The reason why the keys cannot be fetched; empty if they can."""
        try:
            fetch_keys(self.server.url.replace(HOST, host), str(self.trusted.file))
        except KeyFileError as error:
            return str(error)
        return ""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.server.close()


def status(server: RunningServer, token: str) -> int:
    return httpx.get(f"{server.url}/v1/streams", headers={"Authorization": f"Bearer {token}"}).status_code


@pytest.mark.parametrize("variable", ["SEMEL_JWT_CA_FILE", "SSL_CERT_FILE"])
def test_a_server_uses_the_keys_of_an_https_url_whose_ca_is_named(site: Site, tmp_path: Path, variable: str) -> None:
    env = {"SEMEL_JWT_KEYS": site.server.url, "SEMEL_STORE": "memory:", variable: str(site.trusted.file)}
    with RunningServer(tmp_path / "data", env=env) as server:
        assert [status(server, token) for token in (signed(0, "first"), signed(1, "second"))] == [200, 401]


def test_a_server_says_why_it_trusts_no_certificate_of_an_unknown_ca(site: Site, tmp_path: Path) -> None:
    env = {"SEMEL_JWT_KEYS": site.server.url, "SEMEL_STORE": "memory:", "SEMEL_TOKEN_ACTIVE": "the-one-token"}
    with RunningServer(tmp_path / "data", env=env) as server:
        assert [status(server, token) for token in (signed(0, "first"), "the-one-token")] == [401, 200]
        said = server.output.read_text()
    assert "the keys of JWTs cannot be fetched; no JWT is accepted" in said
    assert f"the certificate of {HOST} is from a CA that is not trusted here: name it in jwt_ca_file" in said
    assert site.server.asked == []


def wrong_certificates(site: Site) -> dict[str, tuple[Path, str]]:
    """Certificates that are wrong in one way each, with the sentence of the refusal."""
    trusted = site.trusted
    return {
        "expired": (trusted.certificate(ends=-DAY), f"the certificate of {HOST} has expired: renew it there"),
        "not yet valid": (
            trusted.certificate(begins=DAY),
            f"the certificate of {HOST} is not valid yet: compare the clocks of both machines",
        ),
        "unknown CA": (
            site.other.certificate(),
            f"the certificate of {HOST} is from a CA that is not trusted here: name it in jwt_ca_file",
        ),
        "another host": (
            trusted.certificate("elsewhere.example"),
            f"the certificate is not for {HOST}: give the URL with a name that the certificate has",
        ),
    }


@pytest.mark.parametrize("wrong", ["expired", "not yet valid", "unknown CA", "another host"])
def test_a_wrong_certificate_is_refused_in_one_sentence_and_the_keys_stay(
    site: Site, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    file, sentence = wrong_certificates(site)[wrong]

    async def run() -> None:
        fetch = partial(fetch_keys, ca_file=str(site.trusted.file))
        keys = KeyUrl(site.server.url, ["EdDSA"], fetch)
        await keys.refresh()
        site.show(file)
        site.server.answer = site.server.keys("second")
        await keys.refresh()
        assert (bool(keys.keys.fitting("EdDSA", "first")), bool(keys.keys.fitting("EdDSA", "second"))) == (True, False)
        assert (keys.failures, len(site.server.asked)) == (1, 1)
        site.show(site.trusted.certificate())
        await keys.refresh()
        assert keys.keys.fitting("EdDSA", "second")

    asyncio.run(run())
    [told] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert (told.getMessage(), vars(told)["why"]) == (
        "the keys of JWTs cannot be fetched; the keys that were fetched last stay in use",
        sentence,
    )


def test_the_name_in_the_url_is_the_one_that_counts(site: Site) -> None:
    assert "not for localhost" in site.fetch("localhost")
    site.show(site.trusted.certificate("localhost"))
    assert site.fetch("localhost") == ""
    assert f"not for {HOST}" in site.fetch()


def test_a_port_without_tls_is_refused_in_one_sentence(site: Site) -> None:
    plain = KeyServer()
    try:
        with pytest.raises(KeyFileError, match=rf"TLS with {HOST} failed \(.*\): see that the port speaks TLS"):
            fetch_keys(plain.url.replace("http:", "https:"), str(site.trusted.file))
    finally:
        plain.close()
    assert plain.asked == []


def test_a_new_ca_file_counts_from_the_next_fetch_on(site: Site) -> None:
    site.show(site.other.certificate())
    assert "not trusted here" in site.fetch()
    site.trusted.file.write_bytes(site.other.file.read_bytes())
    assert site.fetch() == ""
    site.trusted.file.unlink()
    assert "cannot read" in site.fetch()


def test_a_ca_file_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    url = {"jwt_keys": "https://issuer.example/keys"}
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate\n")
    for file, word in (
        (empty, "no usable certificate"),
        (tmp_path / "absent.pem", "cannot read .*absent.pem: No such"),
    ):
        settings = load_settings(url | {"jwt_ca_file": str(file)}, {}, None)
        with pytest.raises(KeyFileError, match=word):
            read_principals(settings, SCOPE_RULES)
    for keys in ("", "http://127.0.0.1/keys", str(empty)):
        with pytest.raises(SettingsError, match="jwt_ca_file needs an https URL"):
            load_settings({"jwt_keys": keys, "jwt_ca_file": str(empty)}, {}, None)

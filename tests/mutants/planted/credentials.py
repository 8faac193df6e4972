"""Bugs in stored tokens, in keys from a URL, and in who may do what."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

CREDENTIALS = (
    bug(
        "tokens-the-last-revocation-opens-the-server",
        "a store that has ever had a token stays closed",
        "server/auth/stored_tokens.py",
        "    return TokenState(head.version, head.created > 0, {row.id: row for row in found})\n",
        "    return TokenState(head.version, head.stored > 0, {row.id: row for row in found})\n",
        "tests/server/auth/test_token_contract.py",
    ),
    bug(
        "tokens-an-older-state-brings-a-revoked-token-back",
        "a token that was revoked on a node counts there no longer",
        "server/auth/stored_tokens.py",
        "        if state.version <= self._version or state.version < self._floor:\n",
        "        if state.version <= self._version:\n",
        "tests/server/auth/test_stored_tokens.py::test_an_older_state_does_not_bring_a_revoked_token_back",
    ),
    bug(
        "tokens-an-admin-of-some-names-makes-admins-of-all",
        "an operation lets in whom its rule says, and no other caller",
        "server/ops/token_calls.py",
        "        if not principal.has(Role.ADMIN) or principal.scopes is not None:\n",
        "        if not principal.has(Role.ADMIN):\n",
        "tests/server/auth/test_access_matrix.py",
    ),
    bug(
        "keys-from-a-url-are-fetched-for-every-unknown-kid",
        "tokens with unknown keys cause no more than one fetch in the shortest time",
        "server/auth/jwks_url.py",
        "            await asyncio.sleep(max(0.0, MISS_SECONDS - (time.monotonic() - began)))\n",
        "            await asyncio.sleep(0)\n",
        "tests/server/auth/test_jwks_url.py",
    ),
    bug(
        "jwt-key-url-of-another-host",
        "keys of JWTs are fetched from the host of the URL alone",
        "server/auth/issuer_tls.py",
        "        return ssl.create_default_context(cafile=ca_file)\n",
        "        made = ssl.create_default_context(cafile=ca_file)\n"
        "        made.check_hostname = False\n"
        "        return made\n",
        "tests/server/auth/test_jwks_tls.py",
    ),
    bug(
        "jwt-key-url-with-any-certificate",
        "keys of JWTs are fetched from the host of the URL alone",
        "server/auth/jwks_url.py",
        "            with trust_of(ca_file).wrap_socket(plain, server_hostname=host) as secure:\n",
        "            with ssl._create_unverified_context().wrap_socket(plain, server_hostname=host) as secure:\n",
        "tests/server/auth/test_jwks_tls.py",
    ),
)

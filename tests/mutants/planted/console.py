"""Bugs in one-time links and console sessions."""

from __future__ import annotations

from tests.mutants.planted.bug import bug

_RULES = "tests/server/console/test_session_contract.py"
_SERVER = "tests/server/console/test_sessions.py"
_CONTRACT, _SESSIONS = "server/console/session_contract.py", "server/console/sessions.py"

CONSOLE = (
    bug(
        "console-a-code-stays-behind-its-session",
        "a link is used exactly once",
        _CONTRACT,
        "    row = found[0]._replace(digest=command.digest, opened_at=now.ms, ends_at=ends_at)\n"
        "    view.put(CONSOLE_SESSION, row)\n",
        "    row = found[0]._replace(digest=command.digest, opened_at=now.ms, ends_at=ends_at)\n"
        "    view.put(CONSOLE_SESSION, row._replace(digest=command.code, opened_at=None))\n",
        f"{_RULES}::test_exchanges_of_one_batch_open_one_session",
    ),
    bug(
        "console-exchanges-share-no-lock",
        "a link is used exactly once, over two nodes",
        _CONTRACT,
        "        return (SESSIONS_LOCK,)\n",
        "        return (Lock(command.digest),) if isinstance(command, OpenSession) else (SESSIONS_LOCK,)\n",
        "tests/server/console/test_session_nodes.py::test_of_64_exchanges_over_both_nodes_one_gets_the_session",
    ),
    bug(
        "console-a-link-of-any-age-counts",
        "a link can be used for 60 seconds",
        _CONTRACT,
        "    return row.opened_at is None and now_ms < row.ends_at\n",
        "    return row.opened_at is None\n",
        f"{_RULES}::test_a_code_is_over_after_a_minute",
        f"{_SERVER}::test_a_link_of_yesterday_is_over",
    ),
    bug(
        "console-a-session-is-a-link",
        "the token of a session opens no other session",
        _CONTRACT,
        "    return row.opened_at is None and now_ms < row.ends_at\n",
        "    return now_ms < row.ends_at\n",
        f"{_RULES}::test_a_code_is_exchanged_once_and_the_session_lives_for_its_time",
    ),
    bug(
        "console-a-session-outlives-its-credential",
        "a session lives no longer than the credential behind it",
        _CONTRACT,
        "    ends_at = _earlier(now.ms + limits.session_ms, found[0].expires_at)\n",
        "    ends_at = now.ms + limits.session_ms\n",
        f"{_RULES}::test_neither_a_link_nor_a_session_outlives_its_credential",
    ),
    bug(
        "console-sessions-of-a-principal-have-no-bound",
        "one principal cannot use up the sessions of all",
        _CONTRACT,
        "len(own) >= limits.of_principal else None",
        "len(own) > limits.of_principal else None",
        f"{_RULES}::test_the_oldest_of_a_principal_makes_room_and_that_of_another_does_not",
    ),
    bug(
        "console-a-session-keeps-the-rights-of-its-first-request",
        "a session ends when the credential behind it is revoked",
        _SESSIONS,
        "        found = self.behind(held.row, now_ms, held.parent)\n",
        "        if held.principal is not None:\n"
        "            return KnownCaller(held.principal, AuthOutcome.ACTIVE)\n"
        "        found = self.behind(held.row, now_ms, held.parent)\n",
        f"{_SERVER}::test_a_withdrawn_key_ends_the_sessions_of_its_jwts",
    ),
    bug(
        "console-what-is-open-outlives-its-credential",
        "what is open with a session ends when the credential behind it is revoked",
        _SESSIONS,
        "            parent.revocation.watch(self.revocation.come)\n",
        "            pass\n",
        f"{_SERVER}::test_a_revoked_token_ends_its_session_and_what_is_open",
    ),
    bug(
        "console-a-session-comes-back-with-its-credential",
        "a session that ended with its credential has ended for good",
        _SESSIONS,
        "            await self._engine.submit(Write(self._contract, EndSession(held.row.id)))\n",
        "",
        f"{_SERVER}::test_a_token_that_leaves_the_file_ends_its_sessions_for_good",
    ),
    bug(
        "console-a-session-grows-with-its-credential",
        "a session has no more rights than the caller who asked for the link",
        _SESSIONS,
        "    roles, claims = sorted(role.value for role in principal.roles), sorted(principal.claims.items())\n",
        "    roles, claims = [], sorted(principal.claims.items())\n",
        f"{_SERVER}::test_a_token_with_more_roles_after_a_restart_ends_its_sessions",
    ),
    bug(
        "console-a-session-reaches-every-name",
        "a session has no more rights than the credential behind it",
        _SESSIONS,
        "replace(parent, expires_at_ms=ends_at, revocation=self.revocation)",
        "replace(parent, expires_at_ms=ends_at, revocation=self.revocation, scopes=None)",
        f"{_SERVER}::test_a_session_is_the_caller_of_the_link_and_nothing_more",
    ),
    bug(
        "console-sessions-renew-themselves",
        "a session ends after 8 hours: it makes no further links",
        "server/console/session_calls.py",
        "        if token.startswith(SESSION_PREFIX):\n            raise Refused(",
        "        if token.startswith(SESSION_PREFIX + b' '):\n            raise Refused(",
        f"{_SERVER}::test_a_link_needs_a_credential_and_a_session_makes_none",
    ),
    bug(
        "console-signing-out-is-for-the-page-alone",
        "signing out ends the session at the server",
        "server/console/session_calls.py",
        "                changed = await self._change(request, EndSession(row.id))\n",
        "                changed = SessionChanged(None, 0)\n",
        f"{_SERVER}::test_signing_out_ends_the_session_and_what_is_open_and_leaves_a_token",
    ),
    bug(
        "console-any-page-exchanges-a-code",
        "a foreign page can neither make nor exchange a link",
        "server/console/session_calls.py",
        "        if foreign is not None:\n",
        "        if foreign is None and foreign is not None:\n",
        f"{_SERVER}::test_no_other_page_makes_exchanges_or_ends_anything",
    ),
    bug(
        "console-a-new-session-is-unknown-to-the-other-node",
        "a session counts on every node from its first request on",
        "server/app.py",
        "        if called is not None and self.console_calls.lacks(request):\n",
        "        if called is None and self.console_calls.lacks(request):\n",
        "tests/server/console/test_session_nodes.py"
        "::test_a_link_of_one_node_is_exchanged_at_the_other_and_counts_at_once_on_both",
    ),
    bug(
        "console-a-withdrawn-key-counts-on",
        "a session of a JWT ends when the key that signed it is withdrawn",
        "server/auth/jwt_tokens.py",
        "        if kept.key not in self._keys.keys.digests:\n",
        "        if not kept.key:\n",
        "tests/server/auth/test_kept_jwts.py",
    ),
)

"""Tokens are kept as hashes, resolve to principals, and bound what those may do."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from semel.kernel.errors import Refused
from semel.server.auth.credentials import TokenFileError, read_token_file
from semel.server.auth.principals import DEVELOPER, AccessScope, Principal, Principals, Role
from semel.surfaces.registry import SCOPE_RULES
from tests.server.auth.senders import sent_with

NOW_MS = 1_760_000_000_000
TOKEN = b"a-very-secret-token"
DIGEST = sha256(TOKEN).hexdigest()


def write(folder: Path, text: str) -> Path:
    file = folder / "tokens.toml"
    file.write_text(text)
    return file


def resolver(folder: Path, text: str) -> Principals:
    return Principals(read_token_file(write(folder, text), SCOPE_RULES))


def test_without_tokens_everyone_is_the_developer() -> None:
    assert not Principals().are_known
    assert sent_with(Principals(), None, NOW_MS) is DEVELOPER
    assert (DEVELOPER.actor, DEVELOPER.client_id) == ("client:default", "default")
    assert DEVELOPER.may(Role.WORK, "anything", b"")


def test_a_known_token_is_its_principal(tmp_path: Path) -> None:
    known = resolver(
        tmp_path, f'[[token]]\nname = "orders"\nsha256 = "{DIGEST}"\nroles = ["write"]\nscopes = ["streams:o/*"]'
    )
    principal = sent_with(known, b"Bearer " + TOKEN, NOW_MS)
    assert known.are_known
    assert known.judge(TOKEN, NOW_MS).principal is principal
    assert (principal.actor, principal.client_id, principal.expires_at_ms) == ("client:orders", "orders", None)
    assert principal.scopes == (AccessScope("streams", b"o/", True),)
    assert principal.may(Role.WRITE, "streams", b"o/1")
    assert not principal.may(Role.WRITE, "streams", b"p/1")
    assert not principal.may(Role.WRITE, "jobs", b"o/1")
    assert not principal.may(Role.READ, "streams", b"o/1")


@pytest.mark.parametrize("header", [None, b"", b"Bearer", b"Bearer wrong", b"Basic " + TOKEN, TOKEN])
def test_everything_else_is_unauthorized(tmp_path: Path, header: bytes | None) -> None:
    principals = resolver(tmp_path, f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"')
    with pytest.raises(Refused) as refused:
        sent_with(principals, header, NOW_MS)
    assert refused.value.refusal.code == "UNAUTHORIZED"
    assert TOKEN.decode() not in refused.value.refusal.message


def test_an_exact_scope_covers_one_name_and_admin_every_role(tmp_path: Path) -> None:
    text = f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nroles = ["admin"]\nscopes = ["*:one"]'
    principal = sent_with(resolver(tmp_path, text), b"bearer " + TOKEN, NOW_MS)
    assert principal.may(Role.READ, "streams", b"one")
    assert not principal.may(Role.READ, "streams", b"one/two")


def test_scopes_of_one_surface_and_of_all_add_up() -> None:
    scopes = (AccessScope("streams", b"a", False), AccessScope("*", b"b/", True), AccessScope("*", b"c", False))
    principal = Principal("p", "client", frozenset({Role.READ}), scopes)
    assert [name for name in (b"a", b"b/1", b"c", b"d") if principal.may(Role.READ, "streams", name)] == [
        b"a",
        b"b/1",
        b"c",
    ]
    assert [name for name in (b"a", b"b/1", b"c", b"d") if principal.may(Role.READ, "jobs", name)] == [b"b/1", b"c"]
    assert principal.reach("streams") == [(b"a", False), (b"c", False), (b"b/", True)]
    assert principal.reach("jobs") == [(b"c", False), (b"b/", True)]


def test_no_scopes_are_everything_and_an_empty_list_of_them_is_nothing() -> None:
    free = Principal("p", "client", frozenset({Role.READ}))
    bound = Principal("p", "client", frozenset({Role.READ}), ())
    assert free.may(Role.READ, "streams", b"a")
    assert free.reach("streams") == [(b"", True)]
    assert not bound.may(Role.READ, "streams", b"a")
    assert not bound.may(Role.READ, "streams", b"")
    assert bound.reach("streams") == []


def test_a_scope_is_normalized_for_events_alone(tmp_path: Path) -> None:
    text = f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nscopes = ["*:cafe\u0301", "events:e\u0301*"]'
    principal = resolver(tmp_path, text).judge(TOKEN, NOW_MS).principal
    assert principal.may(Role.READ, "events", "caf\u00e9".encode())
    assert principal.may(Role.READ, "events", "\u00e9t\u00e9".encode())
    assert principal.may(Role.READ, "streams", "cafe\u0301".encode())
    assert not principal.may(Role.READ, "streams", "caf\u00e9".encode())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no \\[\\[token"),
        ("[[token]]\n", "needs a name"),
        ('[[token]]\nname = "user:ann"\n', "may not begin with"),
        ('[[token]]\nname = "a"', "sha256"),
        ('[[token]]\nname = "a"\nsha256 = "zz"', "sha256"),
        ('[[token]]\nname = "a"\nsha256 = "aa"', "32"),
        (f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nroles = ["king"]', "roles"),
        (
            f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\n[[token]]\nname = "b"\nsha256 = "{DIGEST}"',
            "b and a have the same token",
        ),
        ("[[token]", "cannot be read"),
        (f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nscope = ["streams:a"]', "unknown field 'scope'"),
        (f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nscopes = []', "must be non-empty lists"),
        (f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nscopes = "streams:a"', "lists"),
        (f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nscopes = ["orders"]', "SURFACE:NAME"),
        (f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nscopes = ["stream:orders"]', "streams, events"),
        (f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nscopes = [7]', "SURFACE:NAME"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_told(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TokenFileError, match=says):
        read_token_file(write(tmp_path, text), SCOPE_RULES)

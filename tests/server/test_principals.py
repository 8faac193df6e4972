"""Tokens are kept as hashes, resolve to principals, and bound what those may do."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from semel.kernel.errors import Refused
from semel.server.principals import DEVELOPER, Principals, Role, TokenFileError, read_token_file

TOKEN = b"a-very-secret-token"
DIGEST = sha256(TOKEN).hexdigest()


def write(folder: Path, text: str) -> Path:
    file = folder / "tokens.toml"
    file.write_text(text)
    return file


def test_without_tokens_everyone_is_the_developer() -> None:
    assert Principals().resolve(None) is DEVELOPER
    assert DEVELOPER.actor == "client:default"


def test_a_known_token_is_its_principal(tmp_path: Path) -> None:
    file = write(
        tmp_path, f'[[token]]\nname = "orders"\nsha256 = "{DIGEST}"\nroles = ["write"]\nscopes = ["streams:o/*"]'
    )
    principal = read_token_file(file).resolve(b"Bearer " + TOKEN)
    assert principal.actor == "client:orders"
    assert principal.may(Role.WRITE, "streams", b"o/1")
    assert not principal.may(Role.WRITE, "streams", b"p/1")
    assert not principal.may(Role.WRITE, "jobs", b"o/1")
    assert not principal.may(Role.READ, "streams", b"o/1")


@pytest.mark.parametrize("header", [None, b"", b"Bearer", b"Bearer wrong", b"Basic " + TOKEN, TOKEN])
def test_everything_else_is_unauthorized(tmp_path: Path, header: bytes | None) -> None:
    principals = read_token_file(write(tmp_path, f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"'))
    with pytest.raises(Refused) as refused:
        principals.resolve(header)
    assert refused.value.problem.code == "UNAUTHORIZED"
    assert TOKEN.decode() not in refused.value.problem.detail


def test_an_exact_scope_covers_one_name_and_admin_every_role(tmp_path: Path) -> None:
    file = write(tmp_path, f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nroles = ["admin"]\nscopes = ["*:one"]')
    principal = read_token_file(file).resolve(b"bearer " + TOKEN)
    assert principal.may(Role.READ, "streams", b"one")
    assert not principal.may(Role.READ, "streams", b"one/two")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no"),
        ("[[token]]\n", "needs a name"),
        ('[[token]]\nname = "a"', "sha256"),
        ('[[token]]\nname = "a"\nsha256 = "zz"', "sha256"),
        ('[[token]]\nname = "a"\nsha256 = "aa"', "32"),
        (f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nroles = ["king"]', "roles"),
        (f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\n[[token]]\nname = "b"\nsha256 = "{DIGEST}"', "token of a"),
        ("[[token]", "cannot be read"),
        (f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nscope = ["streams:a"]', "unknown field 'scope'"),
        (f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nscopes = []', "something in them"),
        (f'[[token]]\nname = "a"\nsha256 = "{DIGEST}"\nscopes = "streams:a"', "lists"),
    ],
)
def test_a_token_file_that_cannot_be_used_is_told(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TokenFileError, match=says):
        read_token_file(write(tmp_path, text))

"""A token gives way to its successor at one instant, everywhere and without a restart."""

from __future__ import annotations

from hashlib import sha256

import pytest

from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields
from semel.server.auth.credentials import TokenFileError, read_principals
from semel.server.auth.principals import (
    DEVELOPER,
    AuthOutcome,
    Principal,
    Principals,
    Role,
    UnauthorizedError,
    presented,
)
from semel.server.auth.rotation import TokenStanding, rotation_of
from semel.server.settings_loader import make_settings
from semel.surfaces.registry import SCOPE_RULES

UNTIL = "2030-01-01T00:00:00Z"
UNTIL_MS = 1_893_456_000_000


def digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


@pytest.mark.parametrize(
    ("following", "until", "now_ms", "standings"),
    [
        ("", "", 0, {"old": TokenStanding.ACTIVE, "new": TokenStanding.UNKNOWN}),
        ("new", "", 2 * UNTIL_MS, {"old": TokenStanding.ACTIVE, "new": TokenStanding.NEXT, "": TokenStanding.UNKNOWN}),
        (
            "new",
            UNTIL,
            UNTIL_MS - 1,
            {"old": TokenStanding.ACTIVE, "new": TokenStanding.NEXT, "x": TokenStanding.UNKNOWN},
        ),
        ("new", UNTIL, UNTIL_MS, {"old": TokenStanding.RETIRED, "new": TokenStanding.NEXT, "x": TokenStanding.UNKNOWN}),
        ("new", "2029-12-31T22:00:00-02:00", UNTIL_MS, {"old": TokenStanding.RETIRED}),
        ("old", UNTIL, UNTIL_MS - 1, {"old": TokenStanding.ACTIVE}),
        ("old", UNTIL, UNTIL_MS, {"old": TokenStanding.NEXT}),
    ],
)
def test_what_holds_follows_from_the_clock_and_the_settings(
    following: str, until: str, now_ms: int, standings: dict[str, TokenStanding]
) -> None:
    rotation = rotation_of("old", following, until)
    assert rotation is not None
    assert {token: rotation.standing(digest(token), now_ms) for token in standings} == standings


def test_without_a_token_there_is_nothing_to_rotate() -> None:
    assert rotation_of("", "", "") is None


def rotating(tokens: dict[bytes, Principal] | None = None, is_needed: bool = True) -> Principals:
    return Principals(tokens, rotation=rotation_of("old", "new", UNTIL), is_needed=is_needed)


def fate(known: Principals, token: str | None, now_ms: int) -> AuthOutcome:
    try:
        return known.judge(None if token is None else token.encode(), now_ms).outcome
    except UnauthorizedError as refused:
        return refused.outcome


def test_both_are_one_principal_with_every_role() -> None:
    known = rotating()
    callers = [known.judge(token, UNTIL_MS - 1).principal for token in (b"old", b"new")]
    assert [caller.name for caller in callers] == ["default", "default"]
    assert all(caller.may(role, "jobs", b"any") for caller in callers for role in Role)
    # What stays open for long ends with its token.
    assert [caller.expires_at_ms for caller in callers] == [UNTIL_MS, None]


def test_how_each_judgement_ends() -> None:
    known = rotating()
    before = {token: fate(known, token, UNTIL_MS - 1) for token in ("old", "new", "x", None)}
    assert before == {
        "old": AuthOutcome.ACTIVE,
        "new": AuthOutcome.NEXT,
        "x": AuthOutcome.BAD,
        None: AuthOutcome.MISSING,
    }
    after = {token: fate(known, token, UNTIL_MS) for token in ("old", "new")}
    assert after == {"old": AuthOutcome.RETIRED, "new": AuthOutcome.NEXT}


def test_a_retired_token_is_told_the_same_as_a_wrong_one() -> None:
    known = rotating()
    said = []
    for token in (b"old", b"x"):
        with pytest.raises(Refused) as refused:
            known.judge(token, UNTIL_MS)
        said.append((refused.value.refusal.message, refused.value.refusal.headers))
    assert said[0] == said[1]


def test_it_stands_beside_other_tokens() -> None:
    service = Principal("service", "client", frozenset({Role.READ}))
    known = rotating({digest("filed"): service})
    assert known.judge(b"filed", UNTIL_MS) == (service, AuthOutcome.ACTIVE)


def test_where_none_is_needed_a_wrong_one_is_still_refused() -> None:
    known = rotating(is_needed=False)
    assert known.judge(None, 0) == (DEVELOPER, AuthOutcome.FREE)
    assert fate(known, "x", 0) is AuthOutcome.BAD
    assert fate(known, "old", UNTIL_MS) is AuthOutcome.RETIRED


def test_a_token_of_the_file_cannot_be_the_configured_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("tokens") / "tokens.toml"
    file.write_text(f'[[token]]\nname = "twin"\nsha256 = "{digest("new").hex()}"\n')
    with pytest.raises(TokenFileError, match="twin"):
        read_principals(make_settings(tokens=str(file), token_active="old", token_next="new"), SCOPE_RULES)


@pytest.mark.parametrize(
    ("pairs", "token"),
    [
        ([], None),
        ([("authorization", "Bearer t")], b"t"),
        ([("authorization", "bearer  t ")], b"t"),
        ([("x-semel-token", "t")], b"t"),
        ([("x-sheratan-token", "t")], b"t"),
        ([("authorization", "Bearer t"), ("x-semel-token", "t"), ("x-sheratan-token", "t")], b"t"),
        ([("authorization", "Basic dTpw"), ("x-semel-token", "t")], b"t"),
        ([("x-semel-token", "")], b""),
    ],
)
def test_a_token_comes_in_any_of_three_headers(pairs: list[tuple[str, str]], token: bytes | None) -> None:
    assert presented(HeaderFields([(name.encode(), value.encode()) for name, value in pairs])) == token


@pytest.mark.parametrize(
    "pairs",
    [
        [("authorization", "Bearer a"), ("x-semel-token", "b")],
        [("x-sheratan-token", "a"), ("x-semel-token", "b")],
        [("authorization", "Bearer a"), ("authorization", "Bearer b")],
        [("x-semel-token", "a"), ("x-semel-token", "b")],
        [("authorization", "Bearer a"), ("x-semel-token", "")],
        [("authorization", "Basic dTpw")],
    ],
)
def test_two_different_tokens_are_a_wrong_one(pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(UnauthorizedError) as refused:
        presented(HeaderFields([(name.encode(), value.encode()) for name, value in pairs]))
    assert refused.value.outcome is AuthOutcome.BAD

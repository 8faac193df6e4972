"""Who may do what, as whom; and which answers are at hand."""

from __future__ import annotations

import pytest

from semel.kernel.errors import Refused
from semel.kernel.header_fields import HeaderFields
from semel.server.auth.principals import (
    DEVELOPER,
    AccessScope,
    Principal,
    Principals,
    Role,
    UnauthorizedError,
    presented,
)
from semel.server.auth.rotation import rotation_of
from semel.surfaces.ledger.access import API_KEY, actor_of, check_client_id, check_full_admin, check_role, reaches
from semel.surfaces.ledger.model import LedgerPlace
from semel.surfaces.ledger.transaction_ids import ReplayCache
from tests.ledger.wire.refusals import refused

WRITER = frozenset({Role.READ, Role.WRITE})
ADMIN = frozenset({Role.ADMIN})


def caller(*scopes: str, roles: frozenset[Role] = WRITER, name: str = "till", client_id: str = "") -> Principal:
    """A known caller who is limited to these names of the ledger."""
    found = tuple(AccessScope("ledger", text.removesuffix("*").encode(), text.endswith("*")) for text in scopes)
    return Principal(name, "client", roles, found or None, client_id)


@pytest.mark.parametrize(
    ("scope", "org", "vault", "other_vault", "other_org"),
    [
        ("", True, True, True, True),
        ("7001", True, True, True, False),
        ("7001/", True, False, False, False),
        ("7001/9001", False, True, False, False),
        ("7001/*", True, True, True, False),
        ("7001/90*", False, True, True, False),
        ("700*", True, True, True, True),
        ("*", True, True, True, True),
        ("8001", False, False, False, False),
    ],
)
def test_a_scope_reaches_places(scope: str, org: bool, vault: bool, other_vault: bool, other_org: bool) -> None:
    somebody = caller(scope) if scope else caller()
    wanted = {
        LedgerPlace(7001): org,
        LedgerPlace(7001, 9001): vault,
        LedgerPlace(7001, 9002): other_vault,
        LedgerPlace(7002): other_org,
    }
    for place, is_reached in wanted.items():
        assert reaches(somebody, Role.READ, place) is is_reached, place
        assert reaches(somebody, Role.ADMIN, place) is False
        if is_reached:
            check_role(somebody, Role.WRITE, place)
        else:
            with refused("", "permission_denied"):
                check_role(somebody, Role.WRITE, place)


def test_a_role_is_needed_whatever_the_place() -> None:
    reader = caller(roles=frozenset({Role.READ}))
    check_role(reader, Role.READ, None)
    for role in (Role.WRITE, Role.ADMIN):
        with refused("", "permission_denied"):
            check_role(reader, role, None)
        check_role(caller(roles=ADMIN), role, LedgerPlace(7001, 9001))


def test_the_whole_ledger_is_for_administrators_of_it() -> None:
    check_full_admin(caller(roles=ADMIN))
    check_full_admin(caller("*", roles=ADMIN))
    check_full_admin(DEVELOPER)
    for somebody in (caller(), caller("7001/*", roles=ADMIN), caller("7*", roles=ADMIN)):
        with refused("", "permission_denied"):
            check_full_admin(somebody)


NAMES = ("a", "a/b", "till-3", "x/", "default")
CREDENTIALS = Principals({name.encode(): caller(name=name) for name in NAMES})


def user(subject: str, client_id: str = "") -> Principal:
    """A caller with a JWT."""
    return Principal(subject, "user", WRITER, None, client_id)


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("a", "a"),
        ("a/", "a"),
        ("a/c", "a"),
        ("a/bc", "a"),
        ("a/b", "a/b"),
        ("a/b/", "a/b"),
        ("a/b/c/d", "a/b"),
        ("a//b", "a"),
        ("x/", "x/"),
        ("x//y", "x/"),
        ("x/y", None),
        ("x", None),
        ("b", None),
        ("A", None),
        ("/a", None),
        ("", None),
        ("/", None),
    ],
)
def test_a_name_belongs_to_the_token_with_the_longest_fitting_one(name: str, owner: str | None) -> None:
    assert CREDENTIALS.owner_of(name) == owner


def test_the_configured_token_has_a_name_too() -> None:
    rotation = rotation_of("secret", "", "")
    assert Principals(rotation=rotation).owner_of("default/1") == "default"
    assert Principals().owner_of("default") is None


OWN: dict[str, tuple[Principal, str]] = {
    "name": (caller(name="a"), "a"),
    "below": (caller(name="a"), "a/c"),
    "just below": (caller(name="a"), "a/"),
    "similar": (caller(name="a"), "a/bc"),
    "name with a slash": (caller(name="a/b"), "a/b"),
    "below a slash": (caller(name="a/b"), "a/b/c"),
    "subject": (user("ada"), "ada"),
    "claim": (user("ada", "tablet"), "tablet"),
    "subject beside claim": (user("ada", "tablet"), "ada"),
    "user": (user("ada"), "user:ada"),
    "below user": (user("ada", "tablet"), "user:ada/tablet"),
    "user like a token": (user("till-3"), "user:till-3"),
    "below user like a token": (user("a/b"), "user:a%2Fb/1"),
    "subject with a slash": (user("no/body"), "no/body"),
    "user with a percent sign": (user("a%2Fb"), "user:a%252Fb"),
}
OTHERS: dict[str, tuple[Principal, str]] = {
    "longer token": (caller(name="a"), "a/b"),
    "below the longer token": (caller(name="a"), "a/b/c"),
    "shorter token": (caller(name="a/b"), "a"),
    "beside": (caller(name="a/b"), "a/c"),
    "prefix": (caller(name="a"), "ab"),
    "capital": (caller(name="a"), "A"),
    "nobody": (caller(name="a"), "ada"),
    "actor": (caller(name="a"), "client:a"),
    "user of a token's name": (caller(name="a"), "user:a"),
    "empty": (caller(name="a"), ""),
    "subject like a token": (user("till-3"), "till-3"),
    "below subject like a token": (user("till-3"), "till-3/x"),
    "claim like a token": (user("ada", "till-3"), "till-3"),
    "claim below a token": (user("ada", "a/b/7"), "a/b/7"),
    "below subject": (user("ada"), "ada/1"),
    "below claim": (user("ada", "tablet"), "tablet/1"),
    "another user": (user("ada"), "user:bob"),
    "similar user": (user("ada"), "user:adam"),
    "subject like a user": (user("user:bob"), "user:bob"),
    "claim like a user": (user("ada", "user:bob"), "user:bob"),
    "claim below a user": (user("ada", "user:bob/1"), "user:bob/1"),
    "shorter user": (user("a/b"), "user:a/b"),
    "escaped user": (user("a%2Fb"), "user:a%2Fb"),
}


@pytest.mark.parametrize("case", OWN)
def test_client_ids_of_ones_own(case: str) -> None:
    somebody, client = OWN[case]
    check_client_id(somebody, client, CREDENTIALS.owner_of(client))


@pytest.mark.parametrize("case", OTHERS)
def test_client_ids_of_others(case: str) -> None:
    somebody, client = OTHERS[case]
    owner = CREDENTIALS.owner_of(client)
    with refused("clientId", "permission_denied"):
        check_client_id(somebody, client, owner)
    check_client_id(caller(roles=ADMIN), client, owner)
    check_client_id(DEVELOPER, client, owner)


def test_no_client_id_is_that_of_two_credentials() -> None:
    """Of those that no issuer hands out: claims that two JWTs share are the issuer's business."""
    callers = [caller(name=name) for name in NAMES] + [user(name) for name in ("a", "a/b", "till-3", "a%2Fb", "user:a")]
    stems = [*NAMES, *(f"user:{name}" for name in NAMES), "user:a%2Fb", "user:user:a", "user:a%252Fb"]
    for client in [stem + end for stem in stems for end in ("", "/", "/b", "/b/c")]:
        owner = CREDENTIALS.owner_of(client)
        assert sum(_is_let(one, client, owner) for one in callers) <= 1, client


def _is_let(somebody: Principal, client: str, owner: str | None) -> bool:
    try:
        check_client_id(somebody, client, owner)
    except Refused:
        return False
    return True


def test_nobody_is_anonymous_and_somebody_is_not() -> None:
    nobody_known, known = Principals(), Principals({b"": caller()})
    assert actor_of(nobody_known, DEVELOPER, has_token=False) == "client:anonymous"
    assert actor_of(nobody_known, DEVELOPER, has_token=True) == "client:anonymous"
    assert actor_of(known, DEVELOPER, has_token=False) == "client:anonymous"
    assert actor_of(known, DEVELOPER, has_token=True) == "client:default"
    assert actor_of(known, caller(), has_token=True) == "client:till"
    assert actor_of(known, Principal("789", "user", WRITER), has_token=True) == "user:789"


@pytest.mark.parametrize(
    ("headers", "wanted"),
    [
        ({}, None),
        ({"x-api-key": "t"}, b"t"),
        ({"authorization": "Bearer t"}, b"t"),
        ({"x-api-key": "t", "authorization": "Bearer t", "x-semel-token": "t"}, b"t"),
    ],
    ids=["none", "key", "bearer", "all"],
)
def test_a_token_comes_in_many_headers(headers: dict[str, str], wanted: bytes | None) -> None:
    fields = HeaderFields([(name.encode(), value.encode()) for name, value in headers.items()])
    assert presented(fields, (API_KEY,)) == wanted


def test_two_tokens_are_none() -> None:
    with pytest.raises(UnauthorizedError):
        presented(HeaderFields([(b"x-api-key", b"t"), (b"authorization", b"Bearer u")]), (API_KEY,))
    assert presented(HeaderFields([(b"x-api-key", b"t")])) is None, "elsewhere it is no credential"


class Clock:
    """Milliseconds, as the test wants them."""

    now = 0

    def __call__(self) -> int:
        return self.now


def test_an_answer_is_at_hand_once_it_was_told() -> None:
    hot = ReplayCache(10, 1_000, Clock())
    assert not hot.tell(b"a")
    assert hot.tell(b"a")
    assert not hot.tell(b"b")
    assert len(hot) == 2


def test_the_least_recently_told_answer_goes_first() -> None:
    hot = ReplayCache(2, 1_000, Clock())
    for name in (b"a", b"b"):
        hot.tell(name)
    assert hot.tell(b"a")
    hot.tell(b"c")
    assert len(hot) == 2
    assert hot.tell(b"a")
    assert not hot.tell(b"b")


def test_an_answer_is_at_hand_for_its_time() -> None:
    clock = Clock()
    hot = ReplayCache(2, 1_000, clock)
    hot.tell(b"a")
    clock.now = 999
    assert hot.tell(b"a")
    clock.now = 1_999
    assert not hot.tell(b"a")

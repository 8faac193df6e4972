"""Who a transaction is said to come from, and who may write as whom: the credential decides, never the request."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.harness.tokens import Issuer, token_file
from tests.ledger import calls
from tests.ledger.http_wire import Route, place_path, problem_of
from tests.ledger.rig import Ledger, Site, request, serving
from tests.ledger.words import WIRES, Message, Place, Refused, fresh, put, refused

ROLES = {
    "api_key_abc": ["read", "write"],
    "other": ["read", "write"],
    "reader": ["read"],
    "writer": ["write"],
    "admin": ["admin"],
    "scoped": ["read", "write"],
}


def token_of(name: str) -> str:
    return f"the-token-of-{name}"


class Cast:
    """Clients of one server, over one wire."""

    def __init__(self, site: Site, issuer: Issuer, via: str, home: Place, scoped: Place) -> None:
        self.site = site
        self.issuer = issuer
        self.via = via
        self.home = home
        self.scoped_to = scoped

    def named(self, name: str) -> Ledger:
        """The holder of a token of the file."""
        return self.site.ledger(self.via, token=token_of(name))

    def bearer(self, subject: str, **claims: Any) -> Ledger:
        """The holder of a JWT."""
        given = {"sub": subject, "exp": int(time.time()) + 600} | claims
        return self.site.ledger(self.via, token=self.issuer.signed(given))

    def nobody(self) -> Ledger:
        return self.site.ledger(self.via)

    def place(self) -> Place:
        return self.named("admin").new_vault(self.home)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Issuer, Place, Place]]:
    """A server with tokens and JWTs; one token is for a single organization, which is made before the file is."""
    folder = tmp_path_factory.mktemp("actor")
    issuer = Issuer(folder)
    data = folder / "data"
    with serving(data, "sqlite") as site:
        home, scoped = site.ledger().new_org(), site.ledger().new_org()
    scopes = {"scoped": [f"ledger:{scoped.org}/*"]}
    tokens = token_file(folder, {name: (token_of(name), roles, scopes.get(name, [])) for name, roles in ROLES.items()})
    with serving(data, "sqlite", TOKENS=tokens, JWT_KEYS=issuer.keys) as site:
        yield site, issuer, home, scoped


@pytest.fixture(params=WIRES)
def cast(request: pytest.FixtureRequest, guarded: tuple[Site, Issuer, Place, Place]) -> Cast:
    site, issuer, home, scoped = guarded
    return Cast(site, issuer, request.param, home, scoped)


def actor(ledger: Ledger, place: Place, height: int = 1) -> object:
    return ledger.transaction(place, height)["actor"]


# -- who it was -------------------------------------------------------------------------------------------------------


def test_without_credentials_it_is_anonymous(ledger: Ledger, place: Place) -> None:
    """In development mode; never the client id that the caller typed."""
    ledger.commit(place, "user:789", put("a"), sequence=1)
    assert actor(ledger, place) == "client:anonymous"


def test_a_token_is_known_by_its_name(cast: Cast) -> None:
    place, ledger = cast.place(), cast.named("api_key_abc")
    ledger.commit(place, "api_key_abc", put("a"), sequence=1)
    assert actor(ledger, place) == "client:api_key_abc"


def test_a_jwt_is_known_by_its_subject(cast: Cast) -> None:
    place, ledger = cast.place(), cast.bearer("789")
    ledger.commit(place, "789", put("a"), sequence=1)
    assert actor(ledger, place) == "user:789"
    named = cast.bearer("790", client_id="app-7")
    named.commit(place, "app-7", put("a"), sequence=1)
    assert actor(ledger, place, 2) == "user:790"


@pytest.mark.parametrize(("length", "is_fine"), [(123, True), (124, False)], ids=["128-characters", "129-characters"])
def test_an_actor_that_is_too_long(cast: Cast, length: int, is_fine: bool) -> None:
    """128 with the `user:` in front; so no transaction has a longer one."""
    place, subject = cast.place(), "é" * length
    ledger = cast.bearer(subject)
    if is_fine:
        ledger.commit(place, subject, put("a"), sequence=1)
        assert actor(ledger, place) == f"user:{subject}"
    else:
        with refused("INVALID_ARGUMENT", "3203"):
            ledger.write(place, subject, put("a"), sequence=1)
        assert ledger.height(place) == 0


FORGED = ("actor", "x-actor", "x-ledger-actor", "x-user", "x-forwarded-user")


def test_9_no_metadata_sets_the_actor(cast: Cast) -> None:
    place, ledger = cast.place(), cast.named("api_key_abc")
    metadata = tuple((name, "system:gc") for name in FORGED)
    asked = request(place, "api_key_abc", [put("a")], sequence=1)
    ledger.wire.ask("Write", asked, metadata)
    assert actor(ledger, place) == "client:api_key_abc"


def test_9_no_field_of_the_body_sets_the_actor(cast: Cast) -> None:
    """Unknown members are refused over HTTP, and mean nothing over gRPC."""
    place, ledger = cast.place(), cast.named("api_key_abc")
    asked = request(place, "api_key_abc", [put("a")], sequence=1)
    if cast.via == "http":
        for name in ("actor", "caller", "transaction"):
            with refused("INVALID_ARGUMENT", "3203"):
                ledger.wire.ask("Write", asked | {name: "system:gc"})
        assert ledger.height(place) == 0
    else:
        forged = b"".join(tag + b"\x09system:gc" for tag in (b"\x3a", b"\xaa\x06"))  # fields 7 and 101
        ledger.grpc.send("Write", calls.encoded("Write", asked) + forged)
        assert actor(ledger, place) == "client:api_key_abc"


def test_the_actor_is_covered_by_the_proof(cast: Cast) -> None:
    place, ledger = cast.place(), cast.named("other")
    told = ledger.commit(place, "other", put("a"), sequence=1, proofs=True)
    assert told.success["transaction"]["actor"] == "client:other"


def test_clients_may_not_expire_entities(cast: Cast) -> None:
    """Not even an administrator: only the system may."""
    place = cast.place()
    for name in ("api_key_abc", "admin"):
        with refused("PERMISSION_DENIED"):
            cast.named(name).write(place, name, {"expireEntity": {"key": "a", "expiredAt": "1"}}, sequence=1)
    with refused("PERMISSION_DENIED"):
        ledger = cast.bearer("system:gc")
        ledger.write(place, "user:system:gc", {"expireEntity": {"key": "a", "expiredAt": "1"}}, sequence=1)


OWN_TO_THE_SERVER = ("system:gc", "system:", "system:gc/x")


@pytest.mark.parametrize("client", OWN_TO_THE_SERVER)
def test_nobody_writes_under_a_client_id_of_the_server(cast: Cast, client: str) -> None:
    """No token, no administrator, and no JWT that is called so."""
    place = cast.place()
    callers = [cast.named("api_key_abc"), cast.named("admin"), cast.bearer(client), cast.bearer("a", client_id=client)]
    for caller in callers:
        with refused("PERMISSION_DENIED"):
            caller.write(place, client, put("a"), sequence=1)
        with refused("PERMISSION_DENIED"):
            caller.batch(place, client, [put("a")], key=b"0123456789abcdef")
    assert cast.named("admin").height(place) == 0
    named = cast.bearer(client)
    named.commit(place, f"user:{client.replace('/', '%2F')}", put("a"), sequence=1)
    assert actor(named, place) == f"user:{client}"


@pytest.mark.parametrize("client", OWN_TO_THE_SERVER)
def test_nobody_does_so_in_development_mode(ledger: Ledger, place: Place, client: str) -> None:
    with refused("PERMISSION_DENIED"):
        ledger.write(place, client, put("a"), sequence=1)
    assert ledger.height(place) == 0


# -- who may ----------------------------------------------------------------------------------------------------------


def test_a_credential_writes_under_client_ids_of_its_own(cast: Cast) -> None:
    place, ledger = cast.place(), cast.named("api_key_abc")
    for client in ("api_key_abc", "api_key_abc/worker-1", "api_key_abc/"):
        ledger.commit(place, client, put("a"), sequence=1)
    for client in ("other", "api_key_ab", "api_key_abcd", "anything", "API_KEY_ABC"):
        with refused("PERMISSION_DENIED"):
            ledger.write(place, client, put("a"), sequence=1)
        with refused("PERMISSION_DENIED"):
            ledger.batch(place, client, [put("a")], sequence=1)
    assert ledger.height(place) == 3


def test_an_administrator_may_use_any_client_id(cast: Cast) -> None:
    place, ledger = cast.place(), cast.named("admin")
    ledger.commit(place, "api_key_abc", put("a"), sequence=1)
    assert actor(ledger, place) == "client:admin"


def test_roles(cast: Cast) -> None:
    place = cast.place()
    reader, writer, admin = cast.named("reader"), cast.named("writer"), cast.named("admin")
    writer.commit(place, "writer", put("a", b"1"), sequence=1)
    assert reader.value(place, "a") == b"1"
    with refused("PERMISSION_DENIED"):
        reader.write(place, "reader", put("a"), sequence=1)
    with refused("PERMISSION_DENIED"):
        writer.value(place, "a")
    for nobody in (reader, writer, cast.named("other")):
        with refused("PERMISSION_DENIED"):
            nobody.new_org()
        with refused("PERMISSION_DENIED"):
            nobody.new_vault(cast.home)
        with refused("PERMISSION_DENIED"):
            nobody.ask("DeleteVault", place)
        with refused("PERMISSION_DENIED"):
            nobody.set_org(cast.home, ttlSeconds=5)
    assert admin.value(place, "a") == b"1"


def test_a_token_of_one_organization_reaches_no_other(cast: Cast) -> None:
    admin, ledger = cast.named("admin"), cast.named("scoped")
    mine, foreign = admin.new_vault(cast.scoped_to), cast.place()
    ledger.commit(mine, "scoped", put("a", b"1"), key=b"0123456789abcdef")
    ledger.commit(cast.scoped_to, "scoped/x", put("a", b"1"), key=fresh("0123456789abcdef").encode()[:16])
    assert ledger.value(mine, "a") == b"1"
    for place in (foreign, cast.home):
        with pytest.raises(Refused) as caught:
            ledger.write(place, "scoped", put("a"), sequence=1)
        assert caught.value.code in ("PERMISSION_DENIED", "NOT_FOUND")
        with pytest.raises(Refused) as caught:
            ledger.value(place, "a")
        assert caught.value.code in ("PERMISSION_DENIED", "NOT_FOUND")
    assert admin.height(foreign) == 0


def test_a_jwt_of_one_organization_reaches_no_other(cast: Cast) -> None:
    place, foreign = cast.place(), cast.named("admin").new_vault(cast.scoped_to)
    ledger = cast.bearer("ada", org=[str(cast.home.org)])
    ledger.commit(place, "ada", put("a"), sequence=1)
    with pytest.raises(Refused) as caught:
        ledger.write(foreign, "ada", put("a"), sequence=1)
    assert caught.value.code in ("PERMISSION_DENIED", "NOT_FOUND")


def test_nobody_is_let_in_without_a_credential(cast: Cast) -> None:
    place = cast.place()
    for ledger in (cast.nobody(), cast.site.ledger(cast.via, token="wrong"), cast.bearer("late", exp=1)):
        with refused("UNAUTHENTICATED"):
            ledger.write(place, "c", put("a"), sequence=1)
        with refused("UNAUTHENTICATED"):
            ledger.value(place, "a")
        with refused("UNAUTHENTICATED"):
            ledger.new_org()
        with refused("UNAUTHENTICATED"), ledger.watch(place, 1) as blocks:
            next(blocks)


def test_an_api_key_header_will_do(cast: Cast) -> None:
    place, nobody = cast.place(), cast.nobody()
    asked = request(place, "api_key_abc", [put("a")], sequence=1)
    nobody.wire.ask("Write", asked, (("x-api-key", token_of("api_key_abc")),))
    assert actor(cast.named("reader"), place) == "client:api_key_abc"
    with refused("UNAUTHENTICATED"):
        nobody.wire.ask("Write", asked, (("x-api-key", "wrong"),))


def test_two_different_credentials_are_a_wrong_one(cast: Cast) -> None:
    place = cast.place()
    ledger = cast.named("api_key_abc")
    asked = request(place, "api_key_abc", [put("a")], sequence=1)
    with refused("UNAUTHENTICATED"):
        ledger.wire.ask("Write", asked, (("x-api-key", token_of("other")),))
    assert ledger.height(place) == 0


def test_an_unauthenticated_call_says_how_over_http(guarded: tuple[Site, Issuer, Place, Place]) -> None:
    site, _, home, _ = guarded
    response: httpx.Response = site.ledger("http").http.send(Route("GET", f"{place_path(home.fields)}/tip"))
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"]
    body: Message = response.json()
    assert (problem_of(response).code, body["status"]) == ("UNAUTHENTICATED", 401)

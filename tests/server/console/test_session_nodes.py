"""Two nodes over one PostgreSQL: links of one node at the other, races over both, and ends that both hear of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.nodes import Nodes
from tests.harness.postgres.shared import fresh_url
from tests.harness.together import at_once, check_log, eventually
from tests.harness.tokens import Issuer
from tests.server.auth.token_site import TokenAdmin, first_token
from tests.server.console.links import PAGE, bearer, caller, exchange, make_link, sign_in, sign_out

RACERS = 64
ROUNDS = 6


class PairSite:
    """Two nodes, an administrator and an issuer of JWTs."""

    def __init__(self, nodes: Nodes, admin: TokenAdmin, issuer: Issuer) -> None:
        self.nodes, self.admin, self.issuer = nodes, admin, issuer
        self.one, self.two = (node.url for node in nodes.each)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PairSite]:
    folder, url = tmp_path_factory.mktemp("nodes"), fresh_url()
    issuer = Issuer(folder)
    boss = first_token(url, str(folder))
    with Nodes(folder / "data", 2, env={"SEMEL_STORE": url, "SEMEL_JWT_KEYS": str(issuer.keys)}) as nodes:
        yield PairSite(nodes, TokenAdmin(nodes.each[0], boss), issuer)
        check_log(nodes)


def boss_of(pair: PairSite) -> str:
    assert pair.admin.boss is not None
    return pair.admin.boss.secret


def test_a_link_of_one_node_is_exchanged_at_the_other_and_counts_at_once_on_both(pair: PairSite) -> None:
    for _ in range(10):
        session = str(exchange(pair.two, make_link(pair.one, boss_of(pair))).json()["token"])
        # Not eventually: the very first call may reach the node that has not heard of it yet.
        assert [caller(url, session)["name"] for url in (pair.one, pair.two)] == ["boss", "boss"]


def test_of_64_exchanges_over_both_nodes_one_gets_the_session(pair: PairSite) -> None:
    for token in [boss_of(pair), pair.issuer.token("carol")] * ROUNDS:
        code = make_link(pair.one, token)
        calls = [lambda url=url, code=code: exchange(url, code) for url in (pair.one, pair.two)] * (RACERS // 2)
        answers = at_once(calls)
        assert sorted(answer.status_code for answer in answers) == [201] + [401] * (RACERS - 1)


def test_the_end_of_a_session_and_of_its_credential_reaches_both(pair: PairSite) -> None:
    session = sign_in(pair.one, boss_of(pair))
    assert caller(pair.two, session)
    assert sign_out(pair.one, session) == 204
    assert not caller(pair.one, session)
    eventually(lambda: not caller(pair.two, session), "the other node has heard of the sign-out")

    token = pair.admin.create("ada")
    session = sign_in(pair.one, token.secret)
    # As for the token itself, which is a moment old: the other node has to hear of it.
    eventually(lambda: bool(caller(pair.two, session)), "the other node knows the token")
    pair.admin.revoke(token.id)
    assert not caller(pair.one, session)
    eventually(lambda: not caller(pair.two, session), "the other node has heard of the revocation")


def test_a_sign_out_works_at_the_node_that_does_not_know_the_session_yet(pair: PairSite) -> None:
    for _ in range(5):
        session = sign_in(pair.one, boss_of(pair))
        assert sign_out(pair.two, session) == 204
        assert not caller(pair.two, session)
        eventually(lambda session=session: not caller(pair.one, session), "the first node has heard")  # type: ignore[misc]


def test_unknown_sessions_are_refused_and_a_change_reads_once(pair: PairSite) -> None:
    wrong = [f"semel_console_{number}" for number in range(32)]
    found = at_once([lambda token=token: caller(pair.two, token) for token in wrong])  # type: ignore[misc]
    assert found == [{}] * 32
    session = sign_in(pair.one, boss_of(pair))
    made = httpx.post(
        f"{pair.two}/console/api/v1/jobs", headers=bearer(session) | PAGE, json={"kind": "k", "params": {}}
    )
    assert made.is_success


def test_a_session_outlives_a_restart_of_both(pair: PairSite, tmp_path: Path) -> None:
    session, code = sign_in(pair.one, pair.issuer.token("carol")), make_link(pair.one, boss_of(pair))
    pair.nodes.kill()
    pair.nodes.start()
    assert [caller(url, session)["actor"] for url in (pair.two, pair.one)] == ["user:carol"] * 2
    assert exchange(pair.two, code).status_code == 201
    assert exchange(pair.one, code).status_code == 401

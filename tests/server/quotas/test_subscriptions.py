"""The quota of subscriptions of a principal: counted exactly, given back with the subscription, kept over a kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.command import Semel
from tests.harness.postgres.shared import fresh_url
from tests.server.quotas.site import OTHER, Site, file_text, served

PRINCIPALS = {"shop": {"subscriptions": 2}, "late": {}}


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    with served(tmp_path, PRINCIPALS, SEMEL_STORE=fresh_url() if request.param == "postgres" else "") as site:
        yield site


def put(client: httpx.Client, name: str, pattern: str = "quota/*") -> httpx.Response:
    body = {"type": "pull-wake", "pattern": pattern, "wake_stream": "wakes"}
    return client.put(f"/v1/stream/__ds/subscriptions/{name}", json=body)


def refused(answer: httpx.Response) -> None:
    """The refusal, in the shape of subscriptions."""
    assert answer.status_code == 429, answer.text
    assert answer.json()["error"]["code"] == "QUOTA_EXCEEDED"
    assert "quota subscriptions" in answer.json()["error"]["message"]
    assert int(answer.headers["retry-after"]) >= 1


def test_a_subscription_beyond_the_quota_is_refused_until_one_is_deleted(site: Site) -> None:
    with site.client("shop") as client, site.client(OTHER) as other:
        assert [put(client, name).status_code for name in ("a", "b")] == [201, 201]
        answer = put(client, "c")
        refused(answer)
        assert client.get("/v1/stream/__ds/subscriptions/c").status_code == 404
        assert put(client, "b").status_code == 200
        assert put(other, "d").status_code == 201
        assert client.delete("/v1/stream/__ds/subscriptions/d").status_code == 204
        refused(put(client, "c"))
        assert other.delete("/v1/stream/__ds/subscriptions/a").status_code == 204
        assert put(client, "c").status_code == 201
        assert site.refusals("subscriptions") == 2


def test_subscriptions_are_counted_before_the_quota_is_set_and_after_a_kill(site: Site) -> None:
    with site.client("late") as client:
        assert [put(client, name).status_code for name in ("a", "b")] == [201, 201]
        site.server.kill()
        site.file.write_text(file_text({OTHER: {}, "late": {"subscriptions": 2}}))
        site.server.start()
        refused(put(client, "c"))
        assert put(client, "a").status_code == 200
        site.hang_up(file_text({OTHER: {}, "late": {"subscriptions": 3}}))
        assert put(client, "c").status_code == 201


def test_the_check_of_a_store_counts_the_subscriptions_of_each_principal(tmp_path: Path) -> None:
    with served(tmp_path, PRINCIPALS, SEMEL_STORE="") as site:
        with site.client("shop") as client:
            assert [put(client, name).status_code for name in ("a", "b")] == [201, 201]
            assert client.delete("/v1/stream/__ds/subscriptions/a").status_code == 204
        site.server.stop()
        done = Semel("http://127.0.0.1:1")("check", "--data", str(tmp_path / "data"))
        site.server.start()
    assert done.code == 0, done

"""`semel quotas` lists what principals have stored, beside a running server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Semel
from tests.harness.postgres.shared import fresh_url
from tests.server.quotas.site import served
from tests.server.quotas.writers import PAD, writing


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_what_is_stored_is_listed_beside_the_limits(tmp_path: Path, store: str) -> None:
    url = fresh_url() if store == "postgres" else f"sqlite:{tmp_path / 'data'}"
    limits = {"shop": {"stored_keys": 5}, "idle": {"stored_bytes": 7_000}}
    with served(tmp_path, limits, SEMEL_STORE=url) as site, writing(site, "streams", "shop") as writer:
        for number in (1, 2):
            writer.write(number)
        body = {"type": "pull-wake", "pattern": "q/*", "wake_stream": "w"}
        writer.client.put("/v1/stream/__ds/subscriptions/s", json=body).raise_for_status()
        semel = Semel("http://127.0.0.1:1", {"SEMEL_STORE": url, "SEMEL_TOKENS": str(site.file)})
        told = semel.here("quotas", "--json")
        text = semel.here("quotas").out
    listed = {one["principal"]: one for one in map(json.loads, told.out.splitlines())}
    shop, idle = listed["client:shop"], listed["client:idle"]
    assert (shop["stored_keys"], shop["stored_keys_limit"], shop["stored_bytes"]) == (2, 5, 2 * len(PAD))
    assert (shop["subscriptions"], shop["subscriptions_limit"]) == (1, 0)
    assert (idle["stored_bytes"], idle["stored_bytes_limit"]) == (0, 7_000)
    assert "client:idle" in text
    assert "none" in text


def test_an_empty_store_says_so(tmp_path: Path) -> None:
    semel = Semel("http://127.0.0.1:1")
    assert semel.here("migrate", "--data", str(tmp_path / "data")).code == 0
    done = semel.here("quotas", "--data", str(tmp_path / "data"))
    assert "nothing is counted" in done.out + done.err


def test_an_invalid_token_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text('[[quota]]\nname = "a"\nspeed = 1\n')
    semel = Semel("http://127.0.0.1:1")
    assert semel.here("migrate", "--data", str(tmp_path / "data")).code == 0
    done = semel.here("quotas", "--data", str(tmp_path / "data"), "--tokens", str(file))
    assert done.code == 1
    assert "unknown limit 'speed'" in done.err

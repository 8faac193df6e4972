"""`assert_app_idempotent` passes right applications and names what is wrong with others in one sentence."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semel import Once, once
from semel.testing import AppNotIdempotentError, assert_app_idempotent
from tests.once.conftest import fresh_schema
from tests.testing import web_shops
from tests.testing.web_shops import Build, WebShop, web_shop

BODY = {"amount": 5, "lines": [{"sku": "a", "count": 2}, {"sku": "b", "count": 1.5}]}


def url_of(kind: str, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder / 'shop.db'}"
    return fresh_schema().replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    return url_of(request.param, tmp_path)


@pytest.mark.parametrize("build", [web_shops.joined, web_shops.joined_dependency, web_shops.honest])
def test_nothing_is_found_in_a_right_application(url: str, tmp_path: Path, build: Build) -> None:
    shop = web_shop(build, url, tmp_path)
    assert_app_idempotent(shop.app, "/orders", effects=shop.count, json=BODY)
    shop.close()


def test_a_request_that_was_cancelled_does_not_hold_up_its_retry_until_the_collector_runs(tmp_path: Path) -> None:
    """FastAPI leaves a dependency of a cancelled request open, with its transaction and the lock of the key."""
    shop = web_shop(web_shops.joined_dependency, url_of("postgresql", tmp_path), tmp_path)
    gc.disable()
    try:
        assert_app_idempotent(shop.app, "/orders", effects=shop.count, json=BODY)
    finally:
        gc.enable()
    shop.close()


def test_nothing_is_found_in_an_upload(tmp_path: Path) -> None:
    shop = web_shop(web_shops.upload, url_of("sqlite", tmp_path), tmp_path)
    assert_app_idempotent(shop.app, "/orders", effects=shop.count, files={"receipt": b"%PDF"})
    shop.close()


WRONG: dict[Build, str] = {
    web_shops.unprotected: r"there are 2 effects\.$",
    web_shops.two_blocks: r"two blocks of once.transaction\(\) under one key: SecondBlock",
    web_shops.answers_before_its_commit: r"When the commit fails .*, the client got 200 .* all the same\.",
    web_shops.releases_after_failures: r"When the commit fails .* there are 2 effects\.",
    web_shops.compares_bytes: r"the retry was taken for another request \(422\), because it was written differently\.",
}


@pytest.fixture(params=WRONG, ids=lambda build: build.__name__)
def wrong(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[WebShop, str]]:
    """An application with a fault, and what is said of it."""
    shop = web_shop(request.param, url_of("sqlite", tmp_path), tmp_path)
    yield shop, WRONG[request.param]
    shop.close()


def test_what_is_wrong_is_named_in_one_sentence(wrong: tuple[WebShop, str]) -> None:
    shop, said = wrong
    with pytest.raises(AppNotIdempotentError) as found:
        assert_app_idempotent(shop.app, "/orders", effects=shop.count, json=BODY)
    assert [fault for fault in found.value.faults if re.search(said, fault)], found.value.faults
    assert all(fault.endswith(".") or "Error" in fault or "SecondBlock" in fault for fault in found.value.faults)


def test_a_wsgi_application_alike(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    effects.touch()

    def shop(environ: dict[str, Any], start: Any) -> list[bytes]:
        with effects.open("a") as file:
            file.write("x")
        start("201 Created", [("Content-Type", "text/plain")])
        return [b"done"]

    def count() -> int:
        return len(effects.read_text())

    store = Once(str(tmp_path / "receipts.db"))
    assert_app_idempotent(once.WsgiMiddleware(shop, store, scope=None), "/orders", effects=count, json=BODY)
    with pytest.raises(AppNotIdempotentError, match="there are 2 effects"):
        assert_app_idempotent(shop, "/orders", effects=count, json=BODY)
    store.close()


class HomeMade:
    """An application that remembers answers by itself, with one of the mistakes that such code has."""

    def __init__(self, folder: Path, mistake: str) -> None:
        self.effects, self.mistake = folder / "effects", mistake
        self.effects.touch()
        self._folder = folder
        self._known: dict[str, bytes] = {}
        self._gate = asyncio.Event()

    def count(self) -> int:
        return len(self.effects.read_text())

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        key = dict(scope["headers"])[b"idempotency-key"].decode()
        await receive()
        if self.mistake == "one loop":
            await self._pass_gate()
        found = self._found(key)
        if found is not None:
            await self._answer(send, found or b"409", is_replay=True)
            return
        if self.mistake == "claims for good":
            (self._folder / key).touch()
            await asyncio.sleep(0)
        with self.effects.open("a") as file:
            file.write("x")
        if self.mistake == "remembers after the answer":
            await self._answer(send, b"done")
            self._remember(key)
        else:
            self._remember(key)
            await self._answer(send, b"done")

    async def _pass_gate(self) -> None:
        """Wait for what belongs to the event loop of the first request."""
        asyncio.get_running_loop().call_soon(self._gate.set)
        await self._gate.wait()
        self._gate.clear()

    def _found(self, key: str) -> bytes | None:
        if self.mistake == "remembers in memory":
            return self._known.get(key)
        path = self._folder / key
        return path.read_bytes() if path.exists() else None

    def _remember(self, key: str) -> None:
        self._known[key] = b"done"
        (self._folder / key).write_bytes(b"done")

    async def _answer(self, send: Any, body: bytes, *, is_replay: bool = False) -> None:
        status = 409 if body == b"409" else 201
        headers = [(b"idempotency-replayed", b"true")] if is_replay else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("remembers after the answer", r"^When the answer is lost, there are 2 effects\.$"),
        ("remembers in memory", r"^When the process is killed when its answer is ready, there are 2 effects\.$"),
        ("claims for good", r"^When a request is cancelled while its key was claimed, the retry got 409"),
        ("one loop", r"bound to a different event loop"),
    ],
)
def test_each_mistake_of_code_of_ones_own_is_found(tmp_path: Path, mistake: str, said: str) -> None:
    shop = HomeMade(tmp_path, mistake)
    with pytest.raises(AppNotIdempotentError) as found:
        assert_app_idempotent(shop, "/orders", effects=shop.count, json=BODY)
    assert [fault for fault in found.value.faults if re.search(said, fault)], found.value.faults

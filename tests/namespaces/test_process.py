"""The start and the stop of a server with several namespaces, and what is left after a kill."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from semel.engine.engine import nowhere
from semel.kernel.namespace import DEFAULT
from semel.server.app import App
from semel.server.namespaces import add_namespaces, build_context
from semel.server.settings_loader import SettingsError, load_settings, make_settings
from semel.store.protocol import StoreError
from tests.cli.command import Semel
from tests.engine.rig import on_loop
from tests.harness.server import RunningServer

NAMES = ("red", "blue")
BASES = ("", "/ns/red", "/ns/blue")
TEXT = {"Content-Type": "text/plain"}


def write(server: RunningServer, base: str, text: str) -> None:
    url = f"{server.url}{base}/v1/stream/s"
    httpx.put(url, headers=TEXT)
    assert httpx.post(url, content=text, headers=TEXT | {"Idempotency-Key": text}).status_code == 204


def read(server: RunningServer, base: str) -> str:
    return httpx.get(f"{server.url}{base}/v1/stream/s?offset=-1").text


def test_every_namespace_is_there_after_a_stop_and_after_a_kill(tmp_path: Path) -> None:
    server = RunningServer(tmp_path / "data", env={"SEMEL_NAMESPACES": "red,blue"})
    with server:
        for base in BASES:
            write(server, base, f"first{base};")
        assert server.stop() == 0
        server.start()
        for base in BASES:
            write(server, base, f"second{base};")
        server.kill()
        server.start()
        for base in BASES:
            write(server, base, f"second{base};")  # a retry, whose first answer the kill may have cut off
            assert read(server, base) == f"first{base};second{base};"


def test_a_namespace_that_is_no_longer_listed_keeps_its_rows(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_NAMESPACES": "red"}) as server:
        write(server, "/ns/red", "kept;")
    with RunningServer(tmp_path / "data") as server:
        assert httpx.get(f"{server.url}/ns/red/v1/stream/s").status_code == 404
        assert httpx.get(f"{server.url}/v1/stream/s").status_code == 404
    with RunningServer(tmp_path / "data" / "ns_red") as server:  # its store is an ordinary one
        assert read(server, "") == "kept;"


@pytest.mark.parametrize("names", ["Red", "a,a", "default", "a/b", "..", "a;b"])
def test_a_bad_list_is_refused_before_anything_is_opened(names: str) -> None:
    with pytest.raises(SettingsError, match=r"SEMEL_NAMESPACES.*lower-case letter"):
        load_settings({}, {"SEMEL_NAMESPACES": names}, None)


@on_loop
async def test_if_one_store_cannot_be_opened_none_stays_open(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "ns_blue").write_text("a file where the folder would be")
    settings = make_settings(data=str(tmp_path / "data"), namespaces="red,blue")
    for _ in range(2):  # the second time would find the locks of the first
        context = build_context(settings, nowhere)
        with pytest.raises((StoreError, OSError)):
            await add_namespaces(context, nowhere)
        assert context.others == ()


@on_loop
async def test_one_namespace_has_no_router_and_no_label(tmp_path: Path) -> None:
    context = build_context(make_settings(data=str(tmp_path / "data")), nowhere)
    registry = context.metrics.registry
    await add_namespaces(context, nowhere)
    assert (context.others, context.prefix, context.namespace) == ((), b"", DEFAULT)
    assert context.metrics.registry is registry
    assert "namespace" not in {name for family in registry.collect() for one in family.samples for name in one.labels}
    assert App(context).surfaces
    await context.engine.stop()
    context.audit.close()


def test_the_cli_speaks_to_a_namespace_by_its_url(tmp_path: Path) -> None:
    with RunningServer(tmp_path / "data", env={"SEMEL_NAMESPACES": "red"}) as server:
        semel = Semel(server.url + "/ns/red")
        assert semel("streams", "create", "greetings").code == 0
        assert httpx.get(server.url + "/ns/red/v1/streams").text.count("greetings") == 1
        assert httpx.get(server.url + "/v1/streams").text.count("greetings") == 0

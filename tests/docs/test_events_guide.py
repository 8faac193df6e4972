"""The guide of events is true: its frames are sent to a real server in their order, and the answers are those shown."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from tests.harness.server import HOST, RunningServer

GUIDE = Path(__file__).parent.parent.parent / "docs/guide/events.md"
SHOWN_URL = "http://127.0.0.1:8788"
REQUESTS = ("connect", "submit_events", "sync")
CHANGING = {"timestamp", "server_time", "status_updated_at", "msg_id"}
LEFT_OUT = "..."
PATIENCE_SECONDS = 60.0


def blocks(kind: str) -> list[str]:
    """The code blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def parsed(text: str) -> Any:
    """JSON in which `{...}` and `[...]` stand for what is not shown."""
    return json.loads(text.replace("{...}", f'"{LEFT_OUT}"').replace("[...]", f'"{LEFT_OUT}"'))


def alike(shown: Any, real: Any) -> bool:
    """Whether an answer is the one that is shown, but for times and names of messages."""
    if shown == LEFT_OUT:
        return True
    if isinstance(shown, dict) and isinstance(real, dict):
        members = [name in CHANGING or alike(shown[name], real.get(name)) for name in shown]
        return shown.keys() == real.keys() and all(members)
    if isinstance(shown, list) and isinstance(real, list):
        return len(shown) == len(real) and all(map(alike, shown, real))
    return bool(shown == real)


def received(connection: ClientConnection) -> Any:
    return json.loads(connection.recv(timeout=PATIENCE_SECONDS))


def test_frames_and_requests_in_their_order(tmp_path: Path) -> None:
    messages = [parsed(block) for block in blocks("json")]
    assert [message["type"] for message in messages].count("event_broadcast") == 1
    connections: list[ClientConnection] = []
    answer: Any = None
    with ExitStack() as opened:
        server = opened.enter_context(RunningServer(tmp_path / "data"))
        for message in messages:
            if message["type"] == "connect":
                url = f"ws://{HOST}:{server.port}/v1/events"
                connections.append(opened.enter_context(connect(url, open_timeout=PATIENCE_SECONDS)))
            if message["type"] in REQUESTS:
                connections[-1].send(json.dumps(message))
                answer = received(connections[-1])
                assert answer["reply_to"] == message["msg_id"]
                assert answer["type"] != "error", answer
            else:
                real = received(connections[0]) if message["type"] == "event_broadcast" else answer
                assert alike(message, real), real
        for words, shown in commands():
            assert_answered(server.url, words, shown)


def commands() -> Iterator[tuple[list[str], str]]:
    """The curl commands of the guide, as words, with what is shown below them."""
    for block in blocks("console"):
        for part in block.replace("\\\n", " ").split("$ ")[1:]:
            line, _, shown = part.partition("\n")
            if line.startswith("curl "):
                yield shlex.split(line), shown


def assert_answered(server_url: str, words: list[str], shown: str) -> None:
    """Send a request, and compare its answer with the one that is shown."""
    [url] = [word.replace(SHOWN_URL, server_url) for word in words if word.startswith(SHOWN_URL)]
    if "-d" in words:
        answer = httpx.post(url, content=words[words.index("-d") + 1])
    elif "-H" in words:
        name, _, value = words[words.index("-H") + 1].partition(": ")
        with httpx.stream("GET", url, headers={name: value}, timeout=PATIENCE_SECONDS) as streamed:
            for line, real in zip(shown.strip().split("\n"), streamed.iter_lines(), strict=False):
                field, _, content = line.partition(": ")
                is_alike = alike(parsed(content), json.loads(real[6:])) if field == "data" else line == real
                assert is_alike, real
        return
    else:
        answer = httpx.get(url)
    told = answer.json()
    assert alike(parsed(shown), told), told


def test_the_validator(tmp_path: Path) -> None:
    [rules] = [block for block in blocks("python") if "def validate" in block]
    (tmp_path / "shop_rules.py").write_text(rules)
    payloads: list[Any] = [{"qty": quantity} for quantity in (8, 0, 3, 2, "two", True)]
    payloads += [{}, None]
    events = [{"type": "order.placed", "payload": payload} for payload in payloads] + [{"type": "shop.opened"}]
    items = [{"id": f"order-{place}", "partitions": ["shop-4"], "event": event} for place, event in enumerate(events)]
    env = {"PYTHONPATH": str(tmp_path), "SEMEL_EVENTS_VALIDATOR": "shop_rules:validate"}
    with RunningServer(tmp_path / "data", env=env) as server:
        results = httpx.post(f"{server.url}/v1/events", json={"events": items}).json()["results"]
    taken = [result["id"] for result in results if result["status"] == "committed"]
    assert taken == ["order-0", "order-3", "order-8"]
    assert {error["field"] for result in results for error in result.get("errors", ())} == {"event.payload.qty"}

"""The recipe for tools of an agent: a real MCP client over stdio, calls that are repeated, a server that is killed."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters

from tests.recipes.place import PAGE, SECONDS, Place

DYING = """
import death
from billing import server
from mcp.server.mcpserver.tools import Tool
real = Tool.run
async def run(*words, **more):
    answer = await real(*words, **more)
    death.die_once()  # behind the commit, before the answer
    return answer
Tool.run = run
server.run("stdio")
"""
CHARGE: dict[str, object] = {"order_id": "order-7", "amount": 5}
LETTER: dict[str, object] = {"order_id": "order-7", "text": "Thank you."}
Talk = Callable[[Client], Awaitable[Any]]


class Desk:
    """The server of the page, as a program of its own for each conversation."""

    def __init__(self, place: Place) -> None:
        self.place = place
        place.write("dying.py", DYING)
        semel = Path(sys.executable).with_name("semel")
        assert "$ semel once init shop.db" in PAGE
        subprocess.run([semel, "once", "init", "shop.db"], cwd=place.folder, check=True, capture_output=True)
        with sqlite3.connect(place.folder / "shop.db") as connection:
            connection.execute(place.table)
        connection.close()

    def talk(self, talk: Talk, program: str = "billing.py") -> Any:
        """One conversation with a fresh server."""

        async def conversation() -> Any:
            words = StdioServerParameters(
                command=sys.executable, args=[program], cwd=self.place.folder, env=dict(self.place.env)
            )
            async with asyncio.timeout(SECONDS), Client(words, read_timeout_seconds=SECONDS) as client:
                return await talk(client)

        return asyncio.run(conversation())

    def dies(self, tool: str, arguments: dict[str, object]) -> None:
        """The server is killed while it is asked."""
        self.place.ask_for_death()
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - the client's group of whatever it noticed
            self.talk(lambda client: client.call_tool(tool, arguments), "dying.py")
        assert caught.group_contains(MCPError) or isinstance(caught.value, MCPError), caught.value
        assert not (self.place.folder / "die").exists()

    def charges(self) -> list[tuple[str, int]]:
        """What was charged."""
        connection = sqlite3.connect(self.place.folder / "shop.db")
        try:
            return connection.execute("SELECT * FROM charges").fetchall()
        finally:
            connection.close()

    def letters(self) -> str:
        """What was sent."""
        return (self.place.folder / "letters.txt").read_text()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A desk with an empty shop."""
    return Desk(Place(tmp_path))


def said(answer: Any) -> str:
    """What the model reads of an error."""
    assert answer.is_error
    return "".join(part.text for part in answer.content)


def test_a_repeated_call_acts_once_and_a_changed_one_is_refused_with_its_reason(desk: Desk) -> None:
    async def talk(client: Client) -> None:
        calls = [client.call_tool("charge", CHARGE) for _ in range(8)]
        answers = [*await asyncio.gather(*calls), await client.call_tool("charge", CHARGE)]
        assert [one.structured_content for one in answers] == [{"charged": 5}] * 9
        assert "was used with other arguments" in said(await client.call_tool("charge", CHARGE | {"amount": 6}))
        letters = [await client.call_tool("send_letter", LETTER) for _ in range(2)]
        assert [one.structured_content for one in letters] == [{"result": "sent"}] * 2
        assert "was used with other arguments" in said(await client.call_tool("send_letter", LETTER | {"text": "No."}))
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["charge", "send_letter"]
        assert all(tool.annotations and tool.annotations.idempotent_hint for tool in tools)
        assert set(tools[1].input_schema["properties"]) == {"order_id", "text"}

    desk.talk(talk)
    assert desk.charges() == [("order-7", 5)]
    assert desk.letters() == "order-7: Thank you.\n"


def test_a_server_that_is_killed_before_its_answer_has_charged_once(desk: Desk) -> None:
    desk.dies("charge", CHARGE)
    assert desk.charges() == [("order-7", 5)]
    answer = desk.talk(lambda client: client.call_tool("charge", CHARGE))
    assert answer.structured_content == {"charged": 5}
    assert desk.charges() == [("order-7", 5)]


def test_a_letter_whose_outcome_is_unknown_is_not_sent_again_and_the_model_is_told(desk: Desk) -> None:
    billing = desk.place.folder / "billing.py"
    text = billing.read_text().replace('lease="60s"', 'lease="1s"')
    assert 'lease="1s"' in text
    # It dies behind the sending, with the receipt not yet written.
    billing.write_text(text.replace('    return "sent"', '    import death\n    death.die_once()\n    return "sent"'))
    desk.dies("send_letter", LETTER)
    answer = desk.talk(lambda client: client.call_tool("send_letter", LETTER))
    assert "find out whether it took effect" in said(answer)
    assert desk.letters() == "order-7: Thank you.\n"

"""The commands of the streams guide, typed in their order beside a real server, are answered as it shows."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from tests.docs.terminal import SHOWN_URL, Terminal, commands
from tests.harness.server import RunningServer

GUIDE = Path(__file__).parent.parent.parent / "docs/guide/streams.md"
ETAG = re.compile(r'etag: "[0-9a-f]{32}')
"""It begins with the id of the stream."""


def test_the_guide(tmp_path: Path) -> None:
    typed = list(commands(GUIDE.read_text("utf-8")))
    assert len(typed) >= 13
    with ExitStack() as servers:
        server = servers.enter_context(RunningServer(tmp_path / "data"))
        terminal = Terminal(servers, tmp_path, server, {})
        for command in typed:
            if command.line.startswith("S="):
                terminal.type(command)
                continue
            said = ETAG.sub("etag", terminal.run(command.line)).replace(server.url, SHOWN_URL.format(8788))
            assert terminal.answers.are_alike(ETAG.sub("etag", command.shown), said), (command.line, said)

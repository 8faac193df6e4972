"""Semel makes every write happen exactly once, however often it is retried.

    from semel import once

    with once.transaction(connection, key, arguments, scope=user_id) as attempt:
        if attempt.fresh:
            attempt.result = charge(...)

`once` is the library for a program of your own, and imports the standard library alone. The server and the clients of
its five surfaces come with `pip install 'semel[server]'`.
"""

from typing import TYPE_CHECKING, Any

from semel import once
from semel.once import Once, OnceError

if TYPE_CHECKING:
    from semel.once import Outbox

__version__ = "0.1.0"

__all__ = ["Once", "OnceError", "Outbox", "__version__", "once"]


def __getattr__(name: str) -> Any:
    if name == "Outbox":
        return once.Outbox
    raise AttributeError(f"semel has no {name}.")

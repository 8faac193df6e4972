"""Semel makes every write happen exactly once, however often it is retried.

    from semel import once

    with once.transaction(connection, key, arguments, scope=user_id) as attempt:
        if attempt.fresh:
            attempt.result = charge(...)

    with Client("http://127.0.0.1:8788") as client:
        client.streams.append("orders", {"id": 4711}, key="order-4711")

`once` is the library for your own program; it imports only the standard library. `Client` and `AsyncClient` call a
server: `pip install 'semel[client]'`. `pip install 'semel[server]'` adds the server and the `semel` command.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel import once
    from semel.client import AsyncClient, Client
    from semel.once import Once, OnceError, Outbox

__version__ = "0.1.0"

__all__ = ["AsyncClient", "Client", "Once", "OnceError", "Outbox", "__version__", "once"]


if not TYPE_CHECKING:  # type checkers read the imports above; `__getattr__` would hide wrong names from them

    def __getattr__(name: str) -> Any:
        """Import `semel.once` or `semel.client` on first use, because a program seldom needs both."""
        if name not in __all__:
            raise AttributeError(f"semel has no {name}.")
        package = import_module("semel.client" if name in ("AsyncClient", "Client") else "semel.once")
        return package if name == "once" else getattr(package, name)

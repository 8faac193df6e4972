"""Semel makes every write happen exactly once, however often it is retried.

    from semel import once

    with once.transaction(connection, key, arguments, scope=user_id) as attempt:
        if attempt.fresh:
            attempt.result = charge(...)

`once` is the library for your own program; it imports only the standard library. `pip install 'semel[server]'` adds
the server and the clients of its five surfaces.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel import once
    from semel.once import Once, OnceError, Outbox

__version__ = "0.1.0"

__all__ = ["Once", "OnceError", "Outbox", "__version__", "once"]


if not TYPE_CHECKING:  # type checkers read the imports above; `__getattr__` would hide wrong names from them

    def __getattr__(name: str) -> Any:
        """Import `semel.once` on first use, because a server does not need it."""
        if name not in __all__:
            raise AttributeError(f"semel has no {name}.")
        package = import_module("semel.once")
        return package if name == "once" else getattr(package, name)

"""Semel makes every write happen exactly once, however often it is retried.

    from semel import once

    with once.transaction(connection, key, arguments, scope=user_id) as attempt:
        if attempt.fresh:
            attempt.result = charge(...)

`once` is the library for a program of your own, and imports the standard library alone. The server and the clients of
its five surfaces come with `pip install 'semel[server]'`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel import once
    from semel.once import Once, OnceError, Outbox

__version__ = "0.1.0"

__all__ = ["Once", "OnceError", "Outbox", "__version__", "once"]


if not TYPE_CHECKING:  # a checker of types reads the imports above, and minds a name that is not there

    def __getattr__(name: str) -> Any:
        """What is named is imported with its first use: a server needs none of it."""
        if name not in __all__:
            raise AttributeError(f"semel has no {name}.")
        package = import_module("semel.once")
        return package if name == "once" else getattr(package, name)

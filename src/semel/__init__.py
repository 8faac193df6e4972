"""Semel makes every write happen exactly once, however often it is retried.

    from semel import once

    with once.transaction(connection, key, arguments, scope=user_id) as attempt:
        if attempt.fresh:
            attempt.result = charge(...)

`once` is the library for a program of your own, and imports the standard library alone. The server and the clients of
its five surfaces come with `pip install 'semel[server]'`.
"""

from semel import once
from semel.once import Once, OnceError

__version__ = "0.1.0"

__all__ = ["Once", "OnceError", "__version__", "once"]

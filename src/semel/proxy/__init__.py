"""`semel proxy`: an idempotency proxy for any HTTP service; a request with an `Idempotency-Key` takes effect once.

`app` is the proxy as an ASGI application that reads its settings from the environment: `uvicorn semel.proxy:app`.
"""

from semel.proxy.app import app

__all__ = ["app"]

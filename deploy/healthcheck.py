"""The health check of the image: exit code 0 if `/readyz` answers 200, and 1 otherwise.

It imports the standard library alone. A server with a certificate is asked over TLS, without a check of the name: the
question goes to this very process, over loopback.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys

SECONDS = 4.0


def is_ready() -> bool:
    """Whether the server takes a write now."""
    port = int(os.environ.get("SEMEL_PORT") or 8788)
    connection: http.client.HTTPConnection
    if os.environ.get("SEMEL_TLS_CERTIFICATE"):
        unchecked = ssl.create_default_context()
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=SECONDS, context=unchecked)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if is_ready() else 1)

"""HTTP/1.1: the connection, its limits, request bodies, CORS and problem documents."""

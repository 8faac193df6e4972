"""Rules of streams in this process, without a server."""

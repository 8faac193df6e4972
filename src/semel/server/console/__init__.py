"""The console: web pages at `/console` that show what the server stores and does."""

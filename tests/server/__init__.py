"""The server's process: settings, listeners, limits; its rooms have folders of their own."""

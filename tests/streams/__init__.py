"""The streams surface: what clients see, and a server that is killed under load."""

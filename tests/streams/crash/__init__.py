"""A real server, killed without warning, again and again."""

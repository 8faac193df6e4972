"""Client of the jobs surface: its calls, its values and the bytes of its requests."""

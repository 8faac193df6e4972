"""The recipes of `semel.once`, run out of their page beside what they are for."""

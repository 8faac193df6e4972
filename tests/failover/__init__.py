"""Two nodes over a PostgreSQL that fails over to its standby, again and again."""

"""The PostgreSQL store: several nodes over one database, lost answers, failures at the start."""

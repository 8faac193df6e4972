"""Two nodes over a cluster as people run it: Patroni, etcd, PostgreSQL, and PgBouncer in the second layout."""

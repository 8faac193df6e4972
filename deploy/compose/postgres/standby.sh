#!/usr/bin/env bash
# The standby: copies the primary once, then follows it. Its application_name is the one that the primary waits for.
set -euo pipefail

password=$(cat /run/secrets/replication)
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  chmod 0700 "$PGDATA"
  until PGPASSWORD=$password pg_basebackup --host primary --username replication --pgdata "$PGDATA" --wal-method stream \
    --slot standby --write-recovery-conf --checkpoint fast; do
    find "$PGDATA" -mindepth 1 -delete
    sleep 2
  done
fi
exec postgres -c hot_standby=on \
  -c "primary_conninfo=host=primary user=replication password=$password application_name=standby" \
  -c primary_slot_name=standby

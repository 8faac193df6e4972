#!/usr/bin/env bash
# Runs once, when the primary's data folder is made: the roles, the database, and who may connect.
set -euo pipefail

# The commits of this script cannot wait for a standby that does not exist yet.
PGOPTIONS='-c synchronous_commit=local' psql --username postgres --no-psqlrc --set ON_ERROR_STOP=1 \
  --set replication="$(cat /run/secrets/replication)" --set password="$(cat /run/secrets/semel_password)" <<'SQL'
CREATE ROLE replication WITH REPLICATION LOGIN PASSWORD :'replication';
CREATE ROLE semel WITH LOGIN PASSWORD :'password';
CREATE DATABASE semel OWNER semel ENCODING 'UTF8' TEMPLATE template0;
SELECT pg_create_physical_replication_slot('standby');
SQL
printf 'host replication replication samenet scram-sha-256\n' >>"$PGDATA/pg_hba.conf"

CREATE TABLE IF NOT EXISTS semel_once (
  scope text NOT NULL,
  key text NOT NULL,
  fingerprint bytea NOT NULL,
  state text NOT NULL,
  result text,
  owner text,
  lease_until bigint,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  previous_at bigint,
  PRIMARY KEY (scope, key)
);
CREATE INDEX IF NOT EXISTS semel_once_expires ON semel_once (expires_at);

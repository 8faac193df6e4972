CREATE TABLE IF NOT EXISTS semel_outbox (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key text NOT NULL UNIQUE,
  fingerprint bytea NOT NULL,
  method text NOT NULL,
  url text NOT NULL,
  headers text NOT NULL,
  body bytea NOT NULL,
  order_by text,
  state text NOT NULL DEFAULT 'queued',
  owner text,
  next_at bigint NOT NULL,
  wait_ms bigint NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  refusals integer NOT NULL DEFAULT 0,
  status integer,
  error text,
  created_at bigint NOT NULL,
  done_at bigint
);
CREATE INDEX IF NOT EXISTS semel_outbox_open ON semel_outbox (number) WHERE state <> 'done';
CREATE INDEX IF NOT EXISTS semel_outbox_order ON semel_outbox (order_by, number) WHERE state <> 'done';
CREATE INDEX IF NOT EXISTS semel_outbox_done ON semel_outbox (done_at) WHERE state = 'done';

BEGIN TRANSACTION;
CREATE TABLE semel_outbox (
  number integer PRIMARY KEY,
  key text NOT NULL UNIQUE,
  fingerprint blob NOT NULL,
  method text NOT NULL,
  url text NOT NULL,
  headers text NOT NULL,
  body blob NOT NULL,
  order_by text,
  state text NOT NULL DEFAULT 'queued',
  owner text,
  next_at integer NOT NULL,
  wait_ms integer NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  refusals integer NOT NULL DEFAULT 0,
  status integer,
  error text,
  created_at integer NOT NULL,
  done_at integer
);
INSERT INTO "semel_outbox" VALUES(1,'charge-7',X'16B2F0359ED118928AA39B42D13EF5C6AF079C805A7D96E6B6368D3FBB5F0F26','POST','http://127.0.0.1:9/charges','{"Content-Type": "application/json"}',X'7B226E223A317D',NULL,'queued',NULL,2617325,0,0,0,NULL,NULL,1795133181305,NULL);
CREATE INDEX semel_outbox_open ON semel_outbox (number) WHERE state <> 'done';
CREATE INDEX semel_outbox_order ON semel_outbox (order_by, number) WHERE state <> 'done';
CREATE INDEX semel_outbox_done ON semel_outbox (done_at) WHERE state = 'done';
COMMIT;

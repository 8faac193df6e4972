BEGIN TRANSACTION;
CREATE TABLE semel_once (
  scope text NOT NULL,
  key text NOT NULL,
  fingerprint blob NOT NULL,
  state text NOT NULL,
  result text,
  owner text,
  lease_until integer,
  created_at integer NOT NULL,
  expires_at integer NOT NULL,
  previous_at integer,
  PRIMARY KEY (scope, key)
) WITHOUT ROWID;
INSERT INTO "semel_once" VALUES('make_forms.charge','charge:7',X'1DD42DE9287C1B6A96C617376C0DF6B8304485783ED0B4803F1AAC0F119471A5','done','5','4ace69d2daab4f449f13bf63e4bfce74',NULL,1795133181292,1795737981297,NULL);
CREATE INDEX semel_once_expires ON semel_once (expires_at);
COMMIT;

"""Key and value over HTTP with conditional writes: a sixth surface, as an example.

`PUT /v1/kv/<name>` stores a body and returns its version as `ETag`. `If-Match` requires a version, `If-None-Match: *`
requires that there is no value, and with an `Idempotency-Key` a retry gets the first answer. `GET` reads the value.

To run it: copy this folder to `src/semel/surfaces/kv` and add the line `"kv",` to `NAMES` in
`src/semel/surfaces/registry.py`. Nothing else has to be edited.
"""

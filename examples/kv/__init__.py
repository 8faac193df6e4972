"""Key and value over HTTP with conditional writes: a sixth surface, as an example.

`PUT /v1/kv/<name>` stores a body and answers its version as `ETag`. `If-Match` makes it conditional on a version,
`If-None-Match: *` on there being no value, and an `Idempotency-Key` makes a retry get the first answer. `GET` reads.

To run it: copy this folder to `src/semel/surfaces/kv` and add the line `"kv",` to `NAMES` in
`src/semel/surfaces/registry.py`. Nothing else has to be edited.
"""

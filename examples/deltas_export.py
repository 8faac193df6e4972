"""The merged rows of a gateway as JSON lines, which DuckDB and pandas read. With a server (`semel serve`):

python deltas_export.py gw1 > gw1.jsonl
duckdb -c "SELECT * FROM 'gw1.jsonl'"
"""

import json
import sys
import tempfile

from semel.client import Client

with (
    tempfile.TemporaryDirectory() as folder,
    Client() as client,
    client.deltas(f"{folder}/replica.db", sys.argv[1]) as db,
):
    db.sync()
    for table in db.tables():
        for row_id, columns in db.rows(table).items():
            print(json.dumps({"table": table, "row_id": row_id, "columns": columns}))

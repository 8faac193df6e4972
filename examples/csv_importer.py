"""Import the rows of a CSV file, each exactly once: kill it and start it again, or import the file twice.

pip install semel
python csv_importer.py orders.csv --database shop.db

The file has the columns order_id and amount; order_id names a row. A row whose order_id was imported with another
amount is refused. --dry-run says what would be imported, and changes nothing.
"""

from __future__ import annotations

import argparse
import csv
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from semel import once

BATCH = 500
"""Rows in one commit. A crash loses at most this many rows, and the next run imports them again."""
BAR_WIDTH = 40


class Progress:
    """A progress bar on standard error, if standard error is a terminal."""

    def __init__(self, size: int) -> None:
        self._size, self._done, self._shown = max(1, size), 0, -1
        self._is_shown = sys.stderr.isatty()

    def lines(self, file: TextIO) -> Iterator[str]:
        """The lines of a file; advances the bar by their bytes."""
        for line in file:
            self._done += len(line.encode())
            self._show()
            yield line
        if self._is_shown:
            sys.stderr.write("\n")

    def _show(self) -> None:
        percent = min(100, 100 * self._done // self._size)
        if self._is_shown and percent != self._shown:
            self._shown = percent
            bar = "#" * (BAR_WIDTH * percent // 100)
            sys.stderr.write(f"\r[{bar:<{BAR_WIDTH}}] {percent:3} %")
            sys.stderr.flush()


def make_tables(connection: sqlite3.Connection) -> None:
    """Open a transaction and create the tables in it, so that a dry run can roll them back."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE IF NOT EXISTS orders (order_id text, amount integer)")
    for statement in once.ddl("sqlite").split(";"):
        connection.execute(statement)


def import_row(connection: sqlite3.Connection, row: dict[str, str | None]) -> str:
    """Import one row in the open transaction, and return its outcome."""
    order_id, text = row.get("order_id"), row.get("amount")
    if not order_id or not text or not text.removeprefix("-").isdecimal():
        raise ValueError("A row needs an order_id, and an amount that is a whole number.")
    amount = int(text)
    with once.transaction(connection, order_id, amount, scope="csv_importer", keep="520w") as attempt:
        if attempt.fresh:
            connection.execute("INSERT INTO orders VALUES (?, ?)", [order_id, amount])
    return "imported" if attempt.fresh else "known"


def import_file(connection: sqlite3.Connection, path: Path, *, is_dry_run: bool) -> Counter[str]:
    """Import a file, with one commit for each batch, and count the rows by outcome."""
    ends: Counter[str] = Counter(imported=0, known=0, refused=0)
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(Progress(path.stat().st_size).lines(file))
        for number, row in enumerate(rows, start=1):
            try:
                ends[import_row(connection, row)] += 1
            except (once.KeyMismatch, ValueError) as error:
                ends["refused"] += 1
                sys.stderr.write(f"line {rows.line_num}: {error}\n")
            if number % BATCH == 0 and not is_dry_run:
                connection.commit()
    if is_dry_run:
        connection.rollback()
    connection.commit()
    return ends


def main() -> None:
    """Read the arguments, import, and print the outcome; exit with 1 if a row was refused."""
    parser = argparse.ArgumentParser(description="Import the rows of a CSV file, each exactly once.")
    parser.add_argument("file", type=Path, help="a CSV file with the columns order_id and amount")
    parser.add_argument("--database", default="shop.db", help="a file of SQLite  [shop.db]")
    parser.add_argument("--dry-run", action="store_true", help="say what would be imported, and change nothing")
    words = parser.parse_args()
    place = ":memory:" if words.dry_run and not Path(words.database).exists() else words.database
    connection = sqlite3.connect(place, timeout=60, isolation_level="IMMEDIATE")
    try:
        make_tables(connection)
        ends = import_file(connection, words.file, is_dry_run=words.dry_run)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        sys.exit(f"{words.file} cannot be read: {error}.")
    finally:
        connection.close()
    done = ", ".join(f"{name} {count}" for name, count in ends.items())
    print(f"dry run: {done}" if words.dry_run else done)
    sys.exit(1 if ends["refused"] else 0)


if __name__ == "__main__":
    main()

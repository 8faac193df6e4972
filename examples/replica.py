"""A to-do list on several devices, each with its own file, online or offline. With a server (`semel serve`):

python replica.py laptop add 1 milk
python replica.py phone list
"""

from __future__ import annotations

import asyncio
import sys

from semel.client import DeltasClient, NoAnswerError, Patience


def change(db: DeltasClient, words: list[str]) -> None:
    """Apply the user's change. It is on disk when this returns; nothing is sent yet."""
    match words:
        case ["add", number, title]:
            db.insert("todos", number, {"title": title, "done": False})
        case ["done", number]:
            db.update("todos", number, {"done": True})
        case ["rename", number, title]:
            db.update("todos", number, {"title": title})
        case ["remove", number]:
            db.delete("todos", number)


async def main(device: str, *words: str) -> None:
    """Change the list, sync if the server is reachable, and print the local list."""
    patience = Patience(tries=2)
    async with DeltasClient(f"{device}.db", gateway="home", client_id=device, patience=patience) as db:
        change(db, list(words))
        try:
            await db.sync()
        except NoAnswerError:
            print(f"offline, {len(db.pending())} to send")
        for number, row in db.rows("todos").items():
            print(number, "x" if row.get("done") else "-", row.get("title"))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

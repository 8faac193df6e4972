"""A to-do list on several devices, each with its own file, online or offline. With a server (`semel serve`):

python replica.py laptop add 1 milk
python replica.py phone list
"""

import sys

from semel.client import Client, NoAnswerError, Patience

device, *words = sys.argv[1:]
with Client(patience=Patience(tries=2)) as client, client.deltas(f"{device}.db", "home", device) as db:
    match words:  # each change is on disk when its call returns; nothing is sent yet
        case ["add", number, title]:
            db.insert("todos", number, {"title": title, "done": False})
        case ["done", number]:
            db.update("todos", number, {"done": True})
        case ["rename", number, title]:
            db.update("todos", number, {"title": title})
        case ["remove", number]:
            db.delete("todos", number)
    try:
        db.sync()
    except NoAnswerError:
        print(f"offline, {len(db.pending())} to send")
    for number, row in db.rows("todos").items():
        print(number, "x" if row.get("done") else "-", row.get("title"))

"""Accounts in a ledger: each transfer happens once, whatever crashes, and every balance is verified.

python ledger_transfer.py open ada 100
python ledger_transfer.py move ada bob 20
"""

import sys

from semel.client import Client, IfAbsent, IfVersion, SetKey, TrustedHead

with Client() as client, TrustedHead("shop.heads") as head:
    shop = client.ledger.create_organization("shop", key="the-shop").place.org
    vault = client.ledger.create_vault(shop, key="the-shop-accounts").place.vault
    accounts = client.ledger.place(shop, vault, head=head)
    with accounts.writer("till-3", "till-3.db") as till:
        for one in till.recovered:  # what an earlier run could not finish, or could not tell
            print(f"recovered: {one.note}: {'done' if one.is_committed else one.outcome}")
        till.forget_recovered()
        match sys.argv[1:]:
            case ["open", name, amount]:
                operations = [SetKey(name, amount, IfAbsent())]
            case ["move", source, target, amount]:
                payer, payee = accounts.read(source), accounts.read(target)
                if payer is None or payee is None:
                    sys.exit("Open both accounts first.")
                operations = [
                    SetKey(source, str(int(payer.text()) - int(amount)), IfVersion(payer.version)),
                    SetKey(target, str(int(payee.text()) + int(amount)), IfVersion(payee.version)),
                ]
            case _:
                sys.exit(__doc__)
        done = till.write(operations, note=" ".join(sys.argv[1:]))
        print(f"block {done.height}, sequence {done.sequence}")

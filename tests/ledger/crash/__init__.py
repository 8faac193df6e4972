"""A real server under a load of transactions, killed without warning, again and again."""

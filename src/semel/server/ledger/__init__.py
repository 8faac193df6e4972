"""The ledger on the server's listeners: the desk that every wire comes to, and the HTTP mapping."""

"""The wire formats of the ledger: values to values, and the service behind them, without a server."""

"""Ledger: transactions that execute once, their durable writer, and reads that are verified."""

"""The rules of deltas: pure decisions over loaded rows."""

"""The rules of subscriptions: pure decisions over loaded rows."""

"""Pure decisions over loaded rows."""

"""Deltas: row changes named by their own content, merged column by column, and pulled in one order a gateway."""

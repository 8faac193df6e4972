"""Random clients of real servers against a model of the event log."""

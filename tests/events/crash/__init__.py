"""A server that is killed under a load of events."""

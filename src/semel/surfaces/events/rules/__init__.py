"""The pure rules of events."""

"""The events package."""

"""`semel doctor`: is everything here that a server needs, and if not, what to do about it."""

from semel.cli.doctor.command import doctor

__all__ = ["doctor"]

"""`semel doctor`: checks everything that a server needs, with advice for each problem."""

from semel.cli.doctor.command import doctor

__all__ = ["doctor"]

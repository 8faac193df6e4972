"""Jobs over HTTP, and the work that goes on without a request: reaping, schedules, long polls."""

from semel.server.jobs.host import JobsHost

__all__ = ["JobsHost"]

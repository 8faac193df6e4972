"""Jobs on the server: HTTP paths, long polls, and maintenance (reaper and schedules)."""

from semel.server.jobs.host import JobsHost

__all__ = ["JobsHost"]

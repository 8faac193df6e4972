"""Jobs over HTTP, and the work that goes on without a request: reaping, schedules, long polls."""

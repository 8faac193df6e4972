"""The pure rules of jobs."""

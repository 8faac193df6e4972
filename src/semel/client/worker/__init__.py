"""The worker: runs functions for kinds of jobs."""

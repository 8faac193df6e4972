"""Random commands, clocks and crashes against a model of jobs."""

"""Jobs: a job queue. A job is submitted once under its key, run by workers under leases, and concluded once."""

"""Jobs: submitted once, run by workers under leases, concluded once."""

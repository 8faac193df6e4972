"""Several namespaces in one process."""

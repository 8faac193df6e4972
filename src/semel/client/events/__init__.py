"""Events: submit them once, read them, and follow partitions with a cursor that survives a crash."""

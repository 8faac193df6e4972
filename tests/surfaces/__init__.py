"""What holds for every surface of the registry."""

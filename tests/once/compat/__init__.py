"""The drivers, frameworks and servers that people have, each run for real through one script."""

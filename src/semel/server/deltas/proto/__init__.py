"""Protobuf messages of binary frames: the description, and the code that the build generates from it."""

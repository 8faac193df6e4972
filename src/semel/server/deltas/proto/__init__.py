"""The messages of binary frames: their description, and the code that the build makes of it."""

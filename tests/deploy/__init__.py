"""What is in `deploy/`: every file is checked by a tool, and the steps of the image run without a daemon."""

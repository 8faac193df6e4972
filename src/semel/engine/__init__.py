"""The one commit path, and what goes with it. Knows no contract by name."""

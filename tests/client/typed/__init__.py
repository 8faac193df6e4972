"""Programs as users write them: checked by mypy and Pyright, and never run."""

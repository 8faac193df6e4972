"""Deltas in the binary encoding: a package, so that its servers end with the last of its tests."""

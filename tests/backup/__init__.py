"""Tests of backups and restores against real servers."""

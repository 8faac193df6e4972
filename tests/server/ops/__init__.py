"""Audit log, health, metrics, logs."""

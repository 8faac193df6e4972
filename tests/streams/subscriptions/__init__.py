"""Subscriptions of streams: webhooks and pull-wakes."""

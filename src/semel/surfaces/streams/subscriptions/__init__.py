"""Subscriptions of streams: durable cursors over many streams, with wakes by webhook or by a wake stream."""

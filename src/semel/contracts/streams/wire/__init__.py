"""Bytes and headers in, answers out: values to values, no sockets."""

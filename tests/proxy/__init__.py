"""Tests of `semel proxy`, on real sockets."""

"""Tests of `client.events`: one suite for the asynchronous and the blocking client."""

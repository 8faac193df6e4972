"""Deltas: replication of row changes.

A change is named by its content, merged by column (last writer wins), and pulled in one order for each gateway.
"""

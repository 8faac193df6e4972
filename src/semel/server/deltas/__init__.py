"""Deltas on the server's listeners: the desk that every wire comes to, and the paths over HTTP."""

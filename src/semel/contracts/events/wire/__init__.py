"""Wire formats of events: frames and bodies in, messages out; no sockets."""

"""Events on the wire: frames and bodies in, messages out; no sockets."""

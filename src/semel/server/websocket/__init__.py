"""WebSocket: the transport of every surface that talks over one."""

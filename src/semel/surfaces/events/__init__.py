"""Events: one global order of client-made events, synced over WebSocket and HTTP."""

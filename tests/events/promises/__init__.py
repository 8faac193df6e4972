"""What a client of the events surface is promised, over WebSocket and HTTP."""

"""What a client of the streams surface is promised, over HTTP."""

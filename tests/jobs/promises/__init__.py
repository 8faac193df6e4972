"""What a client of the jobs surface is promised, over HTTP."""

"""What a client of the deltas surface is promised, over HTTP."""

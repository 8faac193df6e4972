"""Wrong frames and requests, and the oracle that judges each answer."""

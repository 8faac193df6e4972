"""The life of one write: its look-up by any identity, and the retries of it that were answered from its receipt."""

"""A replica of the SDK that is killed while it writes and syncs."""

"""What deltas look like on the wire: values to values."""

"""The process, and the hosts that carry the wires."""

"""The five surfaces: pure rules and sans-I/O wires on one engine."""

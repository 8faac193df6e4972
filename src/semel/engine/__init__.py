"""The engine: the one commit path of all surfaces, with its queue, clock and sweeper. It imports no surface."""

"""The engine: the one commit path of all surfaces, with its queue, clock and sweeper. It knows no surface by name."""

"""Front processes: they accept connections, parse and render, and one writer process decides and commits."""

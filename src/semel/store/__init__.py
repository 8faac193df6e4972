"""Where rows live: a narrow protocol, and the stores that keep it."""

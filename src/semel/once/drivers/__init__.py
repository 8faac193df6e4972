"""Database drivers, chosen by the type of the caller's connection or session and imported only then."""

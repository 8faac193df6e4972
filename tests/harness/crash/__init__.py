"""One harness for lives of servers that end under load: a surface gives clients and a verdict."""

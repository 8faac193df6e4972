"""Our own HTTP/1.1 host: httptools parses, one object is a request and its answer, surfaces are plain functions."""

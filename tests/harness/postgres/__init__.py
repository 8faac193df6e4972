"""A real PostgreSQL for tests: started by them, from a wheel, and stopped by them."""

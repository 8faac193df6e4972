"""The tests of Semel: the promises of the contracts, the laws of the kernel, a tidy repository."""

"""A shop as a user of the library builds it, all of whose parts are killed."""

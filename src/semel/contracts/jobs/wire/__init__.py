"""JSON over HTTP: values in, answers out."""

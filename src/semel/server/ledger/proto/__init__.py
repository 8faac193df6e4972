"""The messages of gRPC: their descriptions, and the code that the build makes of them."""

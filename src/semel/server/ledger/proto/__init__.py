"""Protobuf messages of gRPC: the descriptions, and the code that the build generates from them."""

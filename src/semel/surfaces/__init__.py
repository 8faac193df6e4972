"""The five surfaces on one engine: a folder each, with its rules, wires, service and transports."""

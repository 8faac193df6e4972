"""The five surfaces on one engine; each folder has the rules, wire, service and transports of one surface."""

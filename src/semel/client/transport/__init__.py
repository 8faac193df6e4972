"""HTTP and WebSocket connections of the clients.

The rules are written once, as coroutines over a `Network` (network.py). `socket_network` has sockets that block, so
those coroutines never suspend and a plain call runs them to their end; `asyncio_network` has the sockets of an event
loop.
"""

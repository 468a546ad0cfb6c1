"""Ports for servers that tests start, on the loopback: 20000 to 31000, or those
of KEDIS_TEST_PORTS (`23000-23999`)."""

import os
import random
import socket

# Below the ephemeral ports of the system, which begin at 32768: while a server is
# down before a restart, any connection could take an ephemeral port, even that of a
# client which tries to reconnect to the server.
FIRST, LAST = map(int, os.environ.get("KEDIS_TEST_PORTS", "20000-31000").split("-"))


def free_ports(count):
    """Different ports without a listener at this moment."""
    ports = []
    while len(ports) < count:
        port = random.randrange(FIRST, LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


def free_port():
    """One such port."""
    return free_ports(1)[0]

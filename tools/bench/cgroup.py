"""A memory cgroup, like that of a container: the page cache counts against its limit."""

import os
import time

# Each with the file that holds the limit: version 1, version 2.
PARENTS = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))
# Those with the bytes that are used, and with the number of kills, in the same order.
USED = ("memory.usage_in_bytes", "memory.current")
KILLS = ("memory.oom_control", "memory.events")
REMOVE_DEADLINE_S = 30


class Cgroup:
    """A cgroup; its processes must have ended before it is removed."""

    def __init__(self, limit):
        """With `limit` bytes; OSError if none can be made here."""
        self.path = None
        for number, (parent, file) in enumerate(PARENTS):
            path = os.path.join(parent, f"kedis-bench-{os.getpid()}-{time.monotonic_ns()}")
            try:
                os.mkdir(path)
            except OSError:
                continue
            # Without the memory controller the file does not exist, and is not created.
            try:
                with open(os.path.join(path, file), "r+", encoding="ascii") as limit_file:
                    limit_file.write(str(limit))
            except OSError:
                os.rmdir(path)
                continue
            self.path, self.version = path, number + 1
            return
        raise OSError("no memory cgroup can be made here")

    def enclosed(self, command):
        """The words that run `command` in the cgroup, with the same process id."""
        enter = 'echo $$ >"$0" && exec "$@"'
        return ["sh", "-c", enter, os.path.join(self.path, "cgroup.procs"), *command]

    def raise_limit(self, limit):
        """Sets a limit of so many bytes, which is above the one it has."""
        with open(os.path.join(self.path, PARENTS[self.version - 1][1]), "w", encoding="ascii") as file:
            file.write(str(limit))

    def used(self):
        """Bytes that it uses now, with the page cache."""
        return int(self.read(USED))

    def kills(self):
        """How many of its processes have been killed, as there was no memory for them."""
        return int(dict(line.split() for line in self.read(KILLS).splitlines())["oom_kill"])

    def read(self, names):
        """The text of a file, whose name depends on the version."""
        with open(os.path.join(self.path, names[self.version - 1]), encoding="ascii") as file:
            return file.read()

    def remove(self):
        """Removes it; it is busy for a moment while pages are still accounted to it."""
        deadline = time.monotonic() + REMOVE_DEADLINE_S
        while self.path:
            try:
                os.rmdir(self.path)
                self.path = None
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

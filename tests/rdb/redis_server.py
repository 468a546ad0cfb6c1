"""A redis-server of Debian's package, on a free port of the loopback."""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ports import free_port  # noqa: E402


class Process:
    """A server process with its own directory."""

    def __init__(self, program, *flags):
        self.port = free_port()
        self.dir = Path(tempfile.mkdtemp(prefix="kedis-rdb-"))
        self.program = program
        self.flags = flags
        self.process = None

    def start(self, *more):
        line = [self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.dir)]
        self.process = subprocess.Popen(
            [*line, *self.flags, *more], stdout=open(self.dir / "log", "ab"), stderr=subprocess.STDOUT
        )
        for _ in range(600):
            try:
                self.connect().ping()
                return self
            except redis.exceptions.BusyLoadingError:
                pass
            except redis.ConnectionError:
                if self.process.poll() is not None:
                    raise RuntimeError((self.dir / "log").read_text()) from None
            time.sleep(0.1)
        raise RuntimeError("the server does not come up")

    def connect(self, db=0):
        return redis.Redis(port=self.port, db=db, socket_timeout=120)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.dir)


def redis_server(*flags):
    return Process("redis-server", "--save", "", "--enable-debug-command", "yes", *flags)

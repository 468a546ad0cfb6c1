"""A server process with its own data directory."""

import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import redis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ports import free_port  # noqa: E402

DEADLINE_SECONDS = 60


class Server:
    """A context manager: starts the server, and at the end stops it and removes its data."""

    def __init__(self, binary, keep=False):
        self.binary = binary
        self.keep = keep
        self.folder = Path(tempfile.mkdtemp(prefix="kedis-realdata-"))
        self.process = None
        self.port = free_port()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.kill()
        if self.keep:
            print(f"kept {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self):
        """Starts the server; returns the seconds until it replied."""
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        flags = ["--port", str(self.port), "--dir", str(data), "--bind", "127.0.0.1"]
        started = time.monotonic()
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self.binary, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        while True:
            if self.process.poll() is not None:
                sys.exit(f"the server ended at once:\n{(self.folder / 'log').read_text()}")
            try:
                self.connect().ping()
                return time.monotonic() - started
            except redis.ConnectionError:
                if time.monotonic() - started > DEADLINE_SECONDS:
                    sys.exit("the server does not answer")
                time.sleep(0.002)

    def connect(self):
        """A client that keeps to one connection."""
        return redis.Redis(port=self.port, single_connection_client=True)

    def kill(self):
        """SIGKILL, and waits for the end."""
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()

    def kill_during(self, work, expected):
        """Kills the server while `work` is repeated, until it fails as expected."""
        timer = threading.Timer(0.5, self.kill)
        timer.start()
        try:
            while True:
                work()
        except expected:
            pass
        timer.join()

    def restart(self):
        """Restarts the server with SIGTERM; returns the seconds of both steps."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(DEADLINE_SECONDS)
        if status != 0:
            sys.exit(f"the server ended with {status} after SIGTERM")
        self.start()
        return time.monotonic() - started

    def resident_bytes(self):
        """Resident memory."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def bytes_on_disk(self):
        """Blocks of all files, as du counts them."""
        files = (self.folder / "data").rglob("*")
        return sum(file.stat().st_blocks * 512 for file in files if file.is_file())

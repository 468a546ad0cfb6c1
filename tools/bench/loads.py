"""Runs of the load generator, and of fio."""

import json
import os
import shutil
import subprocess

from server import CaseError

# Beyond the planned time.
EXTRA_S = 600
BLOCK_BYTES = 8 << 10


class Load:
    """A run of the load generator (`tools/bench/load`) against a server."""

    def __init__(self, generator, server, *words, **flags):
        """`words` are the operation or the command; `flags` those of the generator."""
        self.server = server
        command = [generator, "--port", str(server.port)]
        for name, value in flags.items():
            command.append("--" + name.replace("_", "-"))
            if value is not True:
                command.append(str(value))
        self.process = subprocess.Popen([*command, "--", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.limit_s = flags.get("seconds", 0) + EXTRA_S

    def result(self, errors_allowed=False):
        """Its output; an error reply ends the case."""
        try:
            out, problem = self.process.communicate(timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            raise CaseError(f"{self.server.label}: not done after {self.limit_s:.0f} s") from None
        finally:
            self.stop()
        self.server.check()
        if self.process.returncode != 0:
            raise CaseError(f"{self.server.label}: {problem.strip()}")
        result = json.loads(out)
        if result["errors"] and not errors_allowed:
            raise CaseError(f"{self.server.label}: {result['errors']} errors, the first: {result['first_error']}")
        return result

    def stop(self):
        """Ends it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def fio_reads(folder, data_bytes, cgroup, seconds):
    """Random reads of blocks per second by fio, by (way, depth); None without fio.

    The file is as large as the data. `direct` reads are asynchronous, `cached` ones are
    made by as many threads as the depth says, as the kernel has no other way for them.
    """
    if not shutil.which("fio"):
        return None
    file = os.path.join(folder, f"fio-{os.getpid()}")
    common = ["fio", "--name=reads", f"--filename={file}", f"--size={data_bytes // BLOCK_BYTES * BLOCK_BYTES}",
              f"--bs={BLOCK_BYTES}", "--output-format=json"]
    reading = ["--readonly", "--rw=randread", "--norandommap", "--randrepeat=0", "--thread", "--group_reporting",
               "--time_based", f"--runtime={seconds}", f"--ramp_time={seconds / 2}"]
    ways = {"direct": lambda depth: ["--direct=1", "--ioengine=libaio", f"--iodepth={depth}"],
            "cached": lambda depth: ["--direct=0", "--ioengine=psync", f"--numjobs={depth}"]}
    try:
        fio([*common, "--rw=write", "--bs=1m", "--ioengine=psync", "--refill_buffers", "--end_fsync=1"])
        rates = {}
        for way, flags in ways.items():
            for depth in (1, 64):
                command = [*common, *reading, *flags(depth)]
                done = fio(cgroup.enclosed(command) if cgroup else command)
                rates[way, depth] = done["jobs"][0]["read"]["iops"]
        return rates
    finally:
        if os.path.exists(file):
            os.unlink(file)


def fio(command):
    """The output of one run of fio."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    start = done.stdout.find("{")
    if done.returncode != 0 or start < 0:
        raise CaseError(f"fio failed:\n{done.stdout[-800:]}\n{done.stderr[-800:]}")
    return json.loads(done.stdout[start:])

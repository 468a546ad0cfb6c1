"""hiredis' suite: one program, from Debian's source package, in C."""

import contextlib
import glob
import os
import re
import shutil
import socket
import tempfile
from pathlib import Path

import suite as debian
from common import CACHE, Failure, Part, Test, Work, call, install, need, tail

NAME, VERSION = "hiredis", "1.2"
WANTED = debian.Suite("hiredis", f"{VERSION}.", "sid", "hiredis.tsv")
# The suite waits for a host that does not answer, and asks for a name that nobody has. Both leave the machine.
SILENT, OURS = "192.168.254.254", "127.0.0.2"
NOBODY, NO_NAME = "idontexist-noreally.com", "nobody.invalid"
SECONDS = 120


def prepare():
    """The program, built in the cache folder."""
    root = CACHE / "clients" / f"{NAME}-{VERSION}"
    program = root / "hiredis-test"
    if not program.exists():
        need("make", "cc")
        root.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root.parent, prefix="fetch-") as work:
            tree = fetch(work)
            text = (tree / "test.c").read_text(encoding="utf-8")
            for there, here in ((SILENT, OURS), (NOBODY, NO_NAME)):
                if there not in text:
                    raise Failure(f"test.c does not have {there} where the runner knows it")
                text = text.replace(there, here)
            (tree / "test.c").write_text(text, encoding="utf-8")
            install(["make", "-C", tree, "hiredis-test"])
            shutil.rmtree(root, ignore_errors=True)
            os.rename(tree, root)
    return program


def fetch(work):
    """Downloads the source package and unpacks it without Debian's patches, which take tests out."""
    try:
        options = debian.private_apt(work, WANTED.release)
        debian.call(["apt-get", *options, "-q", "update"], work)
        version = debian.pick_version(WANTED, options, work)
        debian.call(["apt-get", *options, "-q", "source", "--download-only", f"{WANTED.package}={version}"], work)
    except (debian.SuiteError, OSError) as problem:
        raise Failure(str(problem)) from problem
    install(["tar", "-xf", glob.glob(os.path.join(work, "*.orig.tar.*"))[0], "-C", work])
    found = glob.glob(os.path.join(work, f"{NAME}-*", "test.c"))
    if not found:
        raise Failure(f"the source package of {NAME} holds no test.c")
    return Path(found[0]).parent


def parts(whole, server, left_out):
    """All of it: it takes seconds, and cannot leave out tests. Without --whole it measures no throughput."""
    del left_out
    program = prepare()
    return [Part("all", lambda: run(program, whole, server))]


def run(program, whole, server):
    """Runs the program over TCP and a Unix socket."""
    with Work(server) as work:
        path = work.folder / "socket"
        port = work.start("--unixsocket", path, "--enable-debug-command", "yes")
        log = work.folder / "log"
        more = [] if whole else ["--skip-throughput"]
        with silence(port):
            status = call([program, "-h", "127.0.0.1", "-p", port, "-s", path, *more], log, SECONDS)
        tests = list(outcomes(log.read_text(encoding="utf-8", errors="replace")))
        if status is None or status < 0:
            why = f"ended by signal {-status}" if status else f"not done after {SECONDS} s"
            tests.append(Test("hiredis-test runs to the end", "failed", f"{why}\n{tail(log, 2000)}"))
        return tests + list(work.ended())


@contextlib.contextmanager
def silence(port):
    """An address with this port where nobody answers: the system drops what finds a full queue."""
    with socket.socket() as listener, contextlib.ExitStack() as waiting:
        listener.bind((OURS, port))
        listener.listen(0)
        for _ in range(2):
            link = waiting.enter_context(socket.socket())
            link.setblocking(False)
            link.connect_ex((OURS, port))
        yield


def outcomes(text):
    """The tests that the program reports, by section and name."""
    section = "without a connection"
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        head = re.match(r"Testing (.*?)(?: \([^)]*\))?: *(?=#|$)", line)
        if head:
            section = head[1]
        match = re.search(r"#\d+ (.*?):? *(PASSED|FAILED|SKIPPED)", line)
        if match:
            yield Test(f"{section}: {match[1]}", match[2].lower(), line)

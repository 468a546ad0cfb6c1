"""Where the suites come from: Debian's source packages of Redis and Valkey.

A package is fetched through apt into a cache folder with a configuration of its
own (lists, cache and sources all stand in that folder), so the machine's apt setup
stays as it is. Which mirror to ask is read from that setup. Nothing of a package is
ever part of this repository.
"""

import dataclasses
import glob
import os
import re
import shutil
import subprocess
import tempfile


@dataclasses.dataclass
class Suite:
    """One suite: the Debian package that holds it, the versions that will do, and the release to ask."""

    package: str
    version: str
    release: str
    # The list of what is left out.
    skips: str


# The newest are in Debian's unstable release, where their versions move on.
SUITES = {
    "redis-7.0": Suite("redis", "7.0.", "bookworm", "skip.tsv"),
    "redis-8": Suite("redis", "8.", "sid", "skip-redis-8.tsv"),
    "valkey": Suite("valkey", "9.", "sid", "skip-valkey.tsv"),
}
DEFAULT = "redis-7.0"


class SuiteError(Exception):
    """The suite cannot be had; the text says what to do."""


def cache_root():
    """The folder for everything this project caches."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "kedis")


def suite_dir(name):
    """The unpacked source tree of a suite, fetched first when it is not there yet."""
    wanted = SUITES[name]
    given = os.environ.get("KEDIS_REDIS_SOURCE") if name == DEFAULT else None
    if given:
        return checked(given)
    root = os.path.join(cache_root(), "redis-source")
    have = sorted(glob.glob(os.path.join(root, tree(wanted), "tests", "test_helper.tcl")))
    if have:
        return os.path.dirname(os.path.dirname(have[-1]))
    return fetch(wanted, root)


def tree(wanted):
    """A pattern for the name of a package's unpacked folder."""
    return f"{wanted.package}-{wanted.version}*"


def files(source):
    """The names of a suite's files, as in unit/type/hash."""
    with tempfile.TemporaryDirectory(prefix="kedis-tcl-") as folder:
        # Valkey's looks for its programs also to list its files.
        for program in ("server", "cli", "benchmark"):
            os.symlink(shutil.which("true"), os.path.join(folder, f"valkey-{program}"))
        listed = call(["tclsh", "tests/test_helper.tcl", "--list-tests"], source, VALKEY_BIN_DIR=folder).split()
    if not listed:
        raise SuiteError(f"the suite in {source} lists no files")
    return listed


def checked(folder):
    """`folder`, when it holds the suite."""
    if not os.path.isfile(os.path.join(folder, "tests", "test_helper.tcl")):
        raise SuiteError(f"{folder} holds no tests/test_helper.tcl")
    return folder


def fetch(wanted, root):
    """Downloads and unpacks the package below `root`."""
    for tool, package in (("apt-get", "apt"), ("dpkg-source", "dpkg-dev")):
        if not shutil.which(tool):
            raise SuiteError(f"{tool} is missing (package {package}); or set KEDIS_REDIS_SOURCE")
    os.makedirs(root, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix="fetch-") as work:
        options = private_apt(work, wanted.release)
        call(["apt-get", *options, "-q", "update"], work)
        version = pick_version(wanted, options, work)
        call(["apt-get", *options, "-q", "source", f"{wanted.package}={version}"], work)
        found = glob.glob(os.path.join(work, tree(wanted), "tests", "test_helper.tcl"))
        if not found:
            raise SuiteError(f"the source package of {wanted.package} holds no Tcl suite")
        unpacked = os.path.dirname(os.path.dirname(found[0]))
        target = os.path.join(root, os.path.basename(unpacked))
        shutil.rmtree(target, ignore_errors=True)
        os.rename(unpacked, target)
    return target


def private_apt(work, release):
    """Options that keep apt inside `work`, with source entries only."""
    parts = os.path.join(work, "sources.d")
    for folder in (parts, os.path.join(work, "lists", "partial"),
                   os.path.join(work, "cache", "archives", "partial")):
        os.makedirs(folder)
    entries = [source_entry(entry, release) for entry in machine_sources()]
    if not entries:
        raise SuiteError("the machine's apt sources name no archive with a `main` component")
    with open(os.path.join(parts, "suite.sources"), "w", encoding="utf-8") as out:
        out.write("\n".join(dict.fromkeys(entries)))
    options = {
        "Dir::State::Lists": os.path.join(work, "lists"),
        "Dir::Cache": os.path.join(work, "cache"),
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": parts,
        "Acquire::Retries": "3",
    }
    if os.geteuid() == 0:
        options["APT::Sandbox::User"] = "root"
    return [word for key, value in options.items() for word in ("-o", f"{key}={value}")]


def source_entry(entry, release):
    """One deb-src stanza; a Debian archive is asked for the release that has the version."""
    suites = entry["suites"]
    if "debian" in entry["uri"] and "security" not in entry["uri"]:
        suites = [release]
    components = [c for c in entry["components"] if c in ("main", "universe")]
    lines = ["Types: deb-src", f"URIs: {entry['uri']}", f"Suites: {' '.join(suites)}",
             f"Components: {' '.join(components)}"]
    if entry["signed_by"]:
        lines.append(f"Signed-By: {entry['signed_by']}")
    return "\n".join(lines) + "\n"


def machine_sources():
    """The archives with a `main` component that this machine's apt knows."""
    found = []
    for path in ["/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*"))]:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except OSError:
            continue
        if path.endswith(".sources"):
            found += stanza_entries(text)
        elif path.endswith(".list"):
            found += line_entries(text)
    usable = [e for e in found if "main" in e["components"]]
    # The security archive holds the same upstream version; one archive is enough.
    return [e for e in usable if "security" not in e["uri"]] or usable


def stanza_entries(text):
    """Entries of a file in the stanza format."""
    for stanza in re.split(r"\n\s*\n", text):
        lines = [l for l in stanza.splitlines() if not l.lstrip().startswith("#")]
        fields = {}
        for line in lines:
            key, colon, value = line.partition(":")
            if colon and not line[:1].isspace():
                fields[key.strip().lower()] = value.strip()
        if fields.get("enabled", "yes").lower() in ("no", "false"):
            continue
        signed_by = fields.get("signed-by", "")
        for uri in fields.get("uris", "").split():
            yield {"uri": uri, "suites": fields.get("suites", "").split(),
                   "components": fields.get("components", "").split(),
                   "signed_by": signed_by if signed_by.startswith("/") else ""}


def line_entries(text):
    """Entries of a file in the one-line format."""
    for line in text.splitlines():
        match = re.match(r"deb(?:-src)?\s+(?:\[([^\]]*)\]\s+)?(\S+)\s+(\S+)\s+([^#]+)", line.strip())
        if match:
            options, uri, suite, components = match.groups()
            signed = re.search(r"signed-by=(/\S+)", options or "")
            yield {"uri": uri, "suites": [suite], "components": components.split(),
                   "signed_by": signed.group(1) if signed else ""}


def pick_version(wanted, options, work):
    """The newest version that will do of those that the archive has."""
    listing = call(["apt-cache", *options, "showsrc", wanted.package], work)
    versions = re.findall(r"^Version: (\S+)$", listing, re.MULTILINE)
    fit = [v for v in versions if v.partition(":")[2].startswith(wanted.version) or v.startswith(wanted.version)]
    if not fit:
        raise SuiteError(f"the archive has {wanted.package} {versions or 'not at all'}, the runner needs "
                         f"{wanted.version}; set KEDIS_REDIS_SOURCE to an unpacked source tree of Redis 7.0")
    return fit[-1]


def call(command, folder, **variables):
    """Runs `command`; its output, or an error that ends with it."""
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C", **variables)
    done = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise SuiteError(f"{command[0]} failed:\n{done.stdout[-2000:]}")
    return done.stdout

"""Where the suite comes from: Debian's source package of Redis 7.0.

The package is fetched through apt into a cache folder with a configuration of
its own (lists, cache and sources all stand in that folder), so the machine's
apt setup stays as it is. Which mirror to ask is read from that setup. Nothing
of the package is ever part of this repository.
"""

import glob
import os
import re
import shutil
import subprocess
import tempfile

VERSION_PREFIX = "5:7.0."
DEBIAN_SUITE = "bookworm"


class SuiteError(Exception):
    """The suite cannot be had; the text says what to do."""


def cache_root():
    """The folder for everything this project caches."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "kedis")


def suite_dir():
    """The unpacked source tree, fetched first when it is not there yet."""
    given = os.environ.get("KEDIS_REDIS_SOURCE")
    if given:
        return checked(given)
    root = os.path.join(cache_root(), "redis-source")
    have = sorted(glob.glob(os.path.join(root, "redis-7.0.*", "tests", "test_helper.tcl")))
    if have:
        return os.path.dirname(os.path.dirname(have[-1]))
    return fetch(root)


def checked(folder):
    """`folder`, when it holds the suite."""
    if not os.path.isfile(os.path.join(folder, "tests", "test_helper.tcl")):
        raise SuiteError(f"{folder} holds no tests/test_helper.tcl")
    return folder


def fetch(root):
    """Downloads and unpacks the package below `root`."""
    for tool, package in (("apt-get", "apt"), ("dpkg-source", "dpkg-dev")):
        if not shutil.which(tool):
            raise SuiteError(f"{tool} is missing (package {package}); or set KEDIS_REDIS_SOURCE")
    os.makedirs(root, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix="fetch-") as work:
        options = private_apt(work)
        call(["apt-get", *options, "-q", "update"], work)
        version = pick_version(options, work)
        call(["apt-get", *options, "-q", "source", f"redis={version}"], work)
        trees = glob.glob(os.path.join(work, "redis-7.0.*", "tests", "test_helper.tcl"))
        if not trees:
            raise SuiteError("the source package of redis holds no Tcl suite")
        tree = os.path.dirname(os.path.dirname(trees[0]))
        target = os.path.join(root, os.path.basename(tree))
        shutil.rmtree(target, ignore_errors=True)
        os.rename(tree, target)
    return target


def private_apt(work):
    """Options that keep apt inside `work`, with source entries only."""
    parts = os.path.join(work, "sources.d")
    for folder in (parts, os.path.join(work, "lists", "partial"),
                   os.path.join(work, "cache", "archives", "partial")):
        os.makedirs(folder)
    entries = [source_entry(entry) for entry in machine_sources()]
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


def source_entry(entry):
    """One deb-src stanza; a Debian archive is asked for the release with 7.0."""
    suites = entry["suites"]
    if "debian" in entry["uri"] and "security" not in entry["uri"]:
        suites = [DEBIAN_SUITE]
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


def pick_version(options, work):
    """The newest 7.0 that the archive has."""
    listing = call(["apt-cache", *options, "showsrc", "redis"], work)
    versions = re.findall(r"^Version: (\S+)$", listing, re.MULTILINE)
    wanted = [v for v in versions if v.startswith(VERSION_PREFIX)]
    if not wanted:
        raise SuiteError(f"the archive has redis {versions or 'not at all'}, the runner needs 7.0; "
                         "set KEDIS_REDIS_SOURCE to an unpacked source tree")
    return wanted[-1]


def call(command, folder):
    """Runs `command`; its output, or an error that ends with it."""
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C")
    done = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise SuiteError(f"{command[0]} failed:\n{done.stdout[-2000:]}")
    return done.stdout

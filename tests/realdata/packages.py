"""The package index, and all expected results, computed without a server.

All texts are bytes, unchanged from the index.
"""

import re
import subprocess
import sys
from collections import defaultdict


def read(limit=None):
    """The index as (name, fields, stanza) in its order, one per name."""
    text = subprocess.run(["apt-cache", "dumpavail"], check=True, stdout=subprocess.PIPE).stdout
    found = {}
    for stanza in text.split(b"\n\n"):
        stanza = stanza.strip(b"\n")
        if not stanza:
            continue
        fields = parse_stanza(stanza)
        found[fields[b"Package"]] = (fields, stanza)
        if limit and len(found) == limit:
            break
    if len(found) < 1000 and not limit:
        sys.exit("the package index is empty; as root: apt-get update")
    return [(name, fields, stanza) for name, (fields, stanza) in found.items()]


def parse_stanza(stanza):
    fields, name = {}, None
    for line in stanza.split(b"\n"):
        if line[:1] in (b" ", b"\t"):
            fields[name] += b"\n" + line
        else:
            name, _, value = line.partition(b":")
            fields[name] = value.strip()
    return fields


RELATION = re.compile(rb"^[a-z0-9][a-z0-9+.-]*")


def dependencies(fields):
    """The names in Depends and Pre-Depends, alternatives included."""
    names = set()
    for field in (b"Depends", b"Pre-Depends"):
        for part in re.split(rb"[,|]", fields.get(field, b"")):
            match = RELATION.match(part.strip())
            if match:
                names.add(match.group())
    return names


class Facts:
    """The expected results of all queries."""

    def __init__(self, index):
        self.index = index
        self.fields = {name: fields for name, fields, _ in index}
        self.number = {name: n for n, (name, _, _) in enumerate(index)}
        self.versions = {name: fields[b"Version"] for name, fields, _ in index}
        self.depends = {}
        self.needed_by = defaultdict(set)
        self.by_size = {}
        self.by_installed_size = {}
        self.maintained = defaultdict(list)
        self.in_section = defaultdict(set)
        self.place = {}
        self.expire_at = {}
        pieces, offset = [], 0
        for name, fields, stanza in index:
            names = dependencies(fields)
            if names:
                self.depends[name] = names
            for other in names:
                self.needed_by[other].add(name)
            if b"Size" in fields:
                self.by_size[name] = int(fields[b"Size"])
            if b"Installed-Size" in fields:
                self.by_installed_size[name] = int(fields[b"Installed-Size"])
            self.maintained[fields[b"Maintainer"]].append(name)
            self.in_section[fields[b"Section"]].add(self.number[name])
            if fields[b"Section"] == b"oldlibs":
                self.expire_at[name] = 4_000_000_000 + self.number[name]
            self.place[name] = (offset, len(stanza))
            pieces.append(stanza)
            offset += len(stanza)
        self.archive = b"".join(pieces)

    def key_count(self):
        """Number of keys after loading, without the short-lived ones."""
        singles = 4  # versions, archive and the two sorted sets
        return (
            singles
            + len(self.index)
            + len(self.depends)
            + len(self.needed_by)
            + len(self.maintained)
            + len(self.in_section)
        )

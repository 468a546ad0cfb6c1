"""What of a suite is left out: the lists beside this file, and what they must hold.

A line is a file of the suite, a test, the reason, what covers it, and perhaps a
fifth field, with tabs between. A test is named in full, as the suite prints it.
The fifth field is Tcl that runs in its place, where later tests count on what it
leaves behind, or that stands in place of a line.

What covers a test is one of

    src/exec/record.rs::name    a test of ours, in that file
    suite:unit/multi::name      another test of the suite, which is not left out
    tls                         the same test, when the file is run again in TLS, as it then is
    absent:ACL|SETUSER          nothing: the server has no such command, or parameter
    unwritten:eventloop_cycles  nothing: no source file of the server has this word, in large letters or small

Some code of the suite stands outside of its tests. In place of a test `*` is the
whole file, `lines:A-B` a block of it, and `line:` and a text every such line; what
covers it is then `-`. A test inside a block that is cut out needs a line of its
own: its name is there as the file spells it.
"""

import dataclasses
import functools
import itertools
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@dataclasses.dataclass
class Skip:
    """One line of a list."""

    place: str
    file: str
    test: str
    reason: str
    cover: str
    instead: str = ""
    used: bool = False

    @property
    def line(self):
        """The text of the lines that the entry cuts out, if it does."""
        return self.test[5:] if self.test.startswith("line:") else None

    @property
    def lines(self):
        """The first and the last line of the block that the entry cuts out."""
        match = re.fullmatch(r"lines:(\d+)-(\d+)", self.test)
        return match and (int(match[1]), int(match[2]))

    @property
    def cuts(self):
        """Whether the entry is about lines of the file and not about a test."""
        return self.test == "*" or self.line is not None or self.lines is not None


def read(paths):
    """The entries of some lists."""
    skips = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                line = line.rstrip("\n")
                if not line or line.startswith("#"):
                    continue
                place, fields = f"{os.path.basename(path)}:{number}", line.split("\t")
                if len(fields) not in (4, 5) or not all(field.strip() for field in fields):
                    raise SystemExit(f"{place}: want file, test, reason and what covers it, with tabs between")
                skips.append(Skip(place, *fields))
    return skips


def faults(skips, source):
    """What is wrong with the entries, whatever a run says."""
    named = {(skip.file, skip.test) for skip in skips}
    here = what_is_here()
    seen = set()
    for skip in skips:
        if (skip.file, skip.test) in seen:
            yield f"{skip.place}: a second line for {skip.file}: {skip.test}"
        seen.add((skip.file, skip.test))
        if skip.cuts != (skip.cover == "-"):
            yield f"{skip.place}: what covers it is `-` for lines of a file, and for nothing else"
        elif not skip.cuts:
            fault = cover_fault(skip.cover, source, named, here)
            if fault:
                yield f"{skip.place}: {skip.cover}: {fault}"


def cover_fault(cover, source, named, here):
    """Why this covers nothing, if so."""
    if cover == "tls":
        return None
    if cover.startswith("absent:"):
        return "the server has it" if cover[7:] in here else None
    if cover.startswith("unwritten:"):
        return "the server's source has it" if cover[10:].lower() in source_text() else None
    path, _, name = cover.removeprefix("suite:").partition("::")
    if cover.startswith("suite:"):
        if (path, name) in named or (path, "*") in named:
            return "it is left out itself"
        if not any(re.fullmatch(spelling, name) for spelling in map(pattern, tests_of(source, path))):
            return "the suite has no such test"
        return None
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except OSError:
        return "there is no such file"
    for number, line in enumerate(lines):
        if line.startswith(f"fn {name}("):
            above = itertools.takewhile(lambda line: line.startswith(("#[", "//")), reversed(lines[:number]))
            if "#[test]" in above:
                return None
    return "there is no such test"


@functools.cache
def source_text():
    """All of the server's source."""
    texts = []
    for folder, _, files in os.walk(os.path.join(ROOT, "src")):
        for name in sorted(files):
            if name.endswith(".rs"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    texts.append(file.read())
    return "\n".join(texts).lower()


def what_is_here():
    """The commands, as `ACL` and `ACL|SETUSER`, and parameters of the manual's lists, which tests of ours
    hold to the server."""
    here = set()
    for name, subcommands in re.findall(r"`([A-Z-]+)`(?: \(([^)]*)\))?", listed("commands.md", "commands")):
        here.add(name)
        here.update(f"{name}|{sub}" for sub in re.findall(r"`([^`]+)`", subcommands))
    here.update(re.findall(r"`([a-z-]+)`", listed("configuration.md", "config")))
    return here


def listed(page, what):
    """A list of a page of the manual."""
    with open(os.path.join(ROOT, "src", "manual", page), encoding="utf-8") as file:
        text = file.read()
    found = text.partition(f"<!-- {what}:begin -->")[2].partition(f"<!-- {what}:end -->")[0]
    if not found:
        raise SystemExit(f"{page}: the list of {what} is not where the runner knows it")
    return found


def cut(text, skips):
    """A file of the suite without what the entries cut out, and the tests in that."""
    lines = text.splitlines(keepends=True)
    gone = []
    for skip in skips:
        if skip.test == "*":
            skip.used = True
            return "", names(text)
        if skip.lines:
            first, last = skip.lines
            # A whole block. The numbers of other lines stay what they are.
            margin = re.match(r"\s*", lines[first - 1])[0]
            if lines[first - 1].strip() in ("", "}") or lines[last - 1].rstrip() != margin + "}":
                raise SystemExit(f"{skip.place}: {skip.test} is no block of {skip.file}")
            gone += names("".join(lines[first - 1:last]))
            lines[first - 1:last] = ["\n"] * (last - first + 1)
            skip.used = True
    for skip in skips:
        if skip.line:
            kept = [skip.instead + "\n" if line.strip() == skip.line else line for line in lines]
            skip.used |= kept != lines
            lines = kept
    return "".join(lines), gone


def tests_of(source, file):
    """The names of the tests of a file of the suite, as it spells them."""
    try:
        with open(os.path.join(source, "tests", file + ".tcl"), encoding="utf-8", errors="surrogateescape") as text:
            return names(text.read())
    except OSError:
        return []


def names(text):
    """The names of the tests in a piece of the suite, as it spells them."""
    found = []
    for match in re.finditer(r"(?m)^[ \t]*test[ \t]+(?=[{\"$])", text):
        found.append(word(text, match.end()))
    return found


def word(text, at):
    """The Tcl word that begins there, without its braces or quotes."""
    opening, depth, begin = text[at], 0, at
    while True:
        char = text[at]
        if char == "\\":
            at += 1
        elif opening == "{":
            depth += (char == "{") - (char == "}")
            if depth == 0:
                return text[begin + 1:at]
        elif opening == '"' and char == '"' and at > begin:
            return text[begin + 1:at]
        elif opening == "$" and char.isspace():
            return text[begin:at]
        at += 1


def pattern(spelling):
    """A regular expression for the names that a spelling can stand for."""
    parts = re.split(r"(\$\{\w+\}|\$[\w:]+(?:\([^)]*\))?|(?<!\\)\[[^\]]*\])", spelling)
    return "".join(".*" if number % 2 else re.escape(re.sub(r"\\(.)", r"\1", part))
                   for number, part in enumerate(parts))

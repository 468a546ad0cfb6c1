"""The blocks of code in the manual, for tests that run them as they stand there."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "src" / "manual"


def block(page, text):
    """The lines of the only block of code on a page that contains a text."""
    blocks, inside = [], None
    for line in (FOLDER / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            if inside is None:
                inside = []
            else:
                blocks.append(inside)
                inside = None
        elif inside is not None:
            inside.append(line)
    found = [lines for lines in blocks if text in "\n".join(lines)]
    assert len(found) == 1, f"{len(found)} blocks in {page} have: {text}"
    return found[0]


def replaced(lines, texts):
    """The same lines with other texts in place of some, each of which must be there."""
    whole = "\n".join(lines)
    for there, here in texts.items():
        assert there in whole, f"the manual does not have {there}"
        whole = whole.replace(there, here)
    return whole.splitlines()

"""Weakens the memtable in one place at a time, in a copy of it; loom's models must fail each time.

Called by `run --mutations`, in the folder of the repository. Each entry: a description, a file,
a text that the file has exactly once, and the text that replaces it.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Not in the list, since the models pass without them: the release stores of slots and of the
# words of filters. The fence at the beginning of a change orders the former; RocksDB publishes
# a row to readers after the latter.
INDEX, ROW, SEGMENTS = "index.rs", "row.rs", "segments.rs"

MUTATIONS = [
    ("a row is linked without a release", INDEX,
     "(*before).next.store(row.as_ptr(), Release);", "(*before).next.store(row.as_ptr(), Relaxed);"),
    ("a link is followed without an acquire", INDEX,
     "let next = NonNull::new(unsafe { (*at).next.load(Acquire) });",
     "let next = NonNull::new(unsafe { (*at).next.load(Relaxed) });"),
    ("the first row is read without an acquire", INDEX,
     "NonNull::new(self.head.next.load(Acquire))", "NonNull::new(self.head.next.load(Relaxed))"),
    ("a walk follows links without an acquire", ROW,
     "(*row.as_ptr()).next.load(Acquire)",
     "(*row.as_ptr()).next.load(std::sync::atomic::Ordering::Relaxed)"),
    ("a slot is read without an acquire", INDEX,
     "self.slots[at % FAN_OUT].load(Acquire)", "self.slots[at % FAN_OUT].load(Relaxed)"),
    ("a new root is published without a release", INDEX,
     "self.root.store(ptr::from_ref(root).cast_mut(), Release);\n    }",
     "self.root.store(ptr::from_ref(root).cast_mut(), Relaxed);\n    }"),
    ("the root is read without an acquire", INDEX,
     "self.root.load(Acquire)", "self.root.load(Relaxed)"),
    ("a change begins without a fence", INDEX,
     "        fence(Release);\n", ""),
    ("a change does not say that it has begun", INDEX,
     "        self.version.store(version.wrapping_add(1), Relaxed);\n", ""),
    ("a change ends without a release", INDEX,
     "self.version.store(version.wrapping_add(2), Release);",
     "self.version.store(version.wrapping_add(2), Relaxed);"),
    ("a version is read without an acquire", INDEX,
     "let version = self.version.load(Acquire);", "let version = self.version.load(Relaxed);"),
    ("what was read is used without a fence", INDEX,
     "                fence(Acquire);\n", ""),
    ("what was read is used without a look at the version", INDEX,
     "if self.version.load(Relaxed) == version {", "if self.version.load(Relaxed) == version || true {"),
    ("nodes are read while they change", INDEX,
     "if version.is_multiple_of(2)", "if (version.is_multiple_of(2) || true)"),
    ("a segment counts before it is there", SEGMENTS,
     "let segment = self.segments[at].get_or_init(",
     "self.count.store(at + 2, Release);\n        let segment = self.segments[at].get_or_init("),
    ("a row is in no filter", SEGMENTS,
     "segment.filter.add(self.hasher.key(key.user()));", "let _ = self.hasher.key(key.user());"),
]


def survives(root, mutation, target):
    """Whether the models pass with a mutation."""
    _, name, old, new = mutation
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        shutil.copytree(root / "tests/memtable", copy / "tests/memtable")
        for part in ["src", "images"]:
            shutil.copytree(root / part, copy / part)
        path = copy / "src/storage/memtable" / name
        text = path.read_text()
        if text.count(old) != 1:
            sys.exit(f"{name} has {text.count(old)} of {old!r}: bring the mutation up to date")
        path.write_text(text.replace(old, new))
        # Cargo does not build files that are older than its last build.
        for file in copy.rglob("*.rs"):
            file.touch()
        done = subprocess.run(
            ["cargo", "test", "--release", "--locked", "--target-dir", target, "models::"],
            cwd=copy / "tests/memtable",
            env={**os.environ, "RUSTFLAGS": "--cfg loom"},
            capture_output=True,
            text=True,
        )
        if "running " not in done.stdout:
            sys.exit(f"the mutation does not compile: {done.stderr}")
        return done.returncode == 0


def main():
    root = pathlib.Path.cwd()
    chosen = [mutation for mutation in MUTATIONS if all(word in mutation[0] for word in sys.argv[2:])]
    passed = []
    for mutation in chosen:
        lives = survives(root, mutation, sys.argv[1])
        print(f"{'NOT NOTICED' if lives else 'noticed':11}  {mutation[0]}", flush=True)
        passed += [mutation[0]] if lives else []
    sys.exit(1 if passed else 0)


main()

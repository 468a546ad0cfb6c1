#!/usr/bin/env python3
"""Certificates for tests, made by openssl: an authority and what it has certified.

    tests/certificates.py FOLDER         writes them to a new folder

The names are those that the suites of Redis and Valkey know.
"""

import os
import re
import subprocess
import sys

SECTIONS = """
[server]
keyUsage = digitalSignature, keyEncipherment
subjectAltName = IP:127.0.0.1, IP:::1, DNS:localhost
[client]
keyUsage = digitalSignature, keyEncipherment
subjectAltName = URI:urn:valkey:user:first, URI:urn:valkey:user:second
[generic]
subjectAltName = IP:127.0.0.1, IP:::1, DNS:localhost
"""
# Files, common names and sections. A byte 1 in a name is a NUL in the certificate.
CERTIFIED = (
    ("server", "Server-only", "server"),
    ("client", "Client-only", "client"),
    ("redis", "Generic-cert", "generic"),
    ("valkey", "Generic-cert", "generic"),
    ("client-nul-cn", "Client-only\x01attacker", "client"),
)


def certify(folder, more=()):
    """Writes an authority, what it has certified and its keys to a new folder; `more` is as CERTIFIED."""
    os.mkdir(folder)
    with open(os.path.join(folder, "sections.cnf"), "w", encoding="utf-8") as out:
        out.write(SECTIONS)
    openssl(folder, "req -x509 -newkey rsa:2048 -nodes -sha256 -days 30 -keyout ca.key -out ca.crt",
            "-subj", "/O=Suite/CN=Certificate Authority")
    for name, common, section in (*CERTIFIED, *more):
        openssl(folder, f"req -new -newkey rsa:2048 -nodes -sha256 -keyout {name}.key -out {name}.csr",
                "-subj", f"/O=Suite/CN={common}")
        openssl(folder, f"x509 -req -sha256 -days 30 -in {name}.csr -out {name}.crt -CA ca.crt -CAkey ca.key "
                        f"-CAcreateserial -extfile sections.cnf -extensions {section}")
        if "\x01" in common:
            put_nul(folder, name, common.encode())
    with open(os.path.join(folder, "ca-multi.crt"), "w", encoding="utf-8") as out:
        for name in ("ca.crt", "server.crt"):
            with open(os.path.join(folder, name), encoding="utf-8") as text:
                out.write(text.read())
    os.mkdir(os.path.join(folder, "ca-dir"))
    os.link(os.path.join(folder, "ca.crt"), os.path.join(folder, "ca-dir", "ca.crt"))
    for family in ("redis", "valkey"):
        # The parameter has no effect here.
        with open(os.path.join(folder, f"{family}.dh"), "w", encoding="utf-8"):
            pass


def openssl(folder, words, *more):
    """Runs openssl in the folder; its output."""
    done = subprocess.run(["openssl", *words.split(), *more], cwd=folder, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"openssl {words}: {done.stderr.decode(errors='replace')}")
    return done.stdout


def put_nul(folder, name, common):
    """Puts a NUL for the byte 1 in a certificate, which openssl does not write, and signs it again."""
    whole = bytearray(openssl(folder, f"x509 -in {name}.crt -outform DER"))
    at = whole.index(common)
    whole[at:at + len(common)] = common.replace(b"\x01", b"\x00")
    parts = openssl(folder, f"asn1parse -in {name}.crt").decode().splitlines()
    parts = [re.match(r"\s*(\d+):d=1 +hl=(\d) +l= *(\d+)", part) for part in parts]
    signed, _, signature = [[int(number) for number in part.groups()] for part in parts if part]
    with open(os.path.join(folder, "signed"), "wb") as out:
        out.write(whole[signed[0]:sum(signed)])
    # A bit string begins with the number of unused bits.
    begin = signature[0] + signature[1] + 1
    whole[begin:] = openssl(folder, "dgst -sha256 -sign ca.key signed")
    with open(os.path.join(folder, f"{name}.der"), "wb") as out:
        out.write(whole)
    openssl(folder, f"x509 -inform DER -in {name}.der -out {name}.crt")
    openssl(folder, f"verify -CAfile ca.crt {name}.crt")


if __name__ == "__main__":
    certify(sys.argv[1])

"""Hand-made hashes with field expiry, in the formats of newer servers: an RDB file and
payloads of DUMP, with all type numbers of Redis 7.4 and Valkey 9 for such hashes."""

import struct

METADATA_PRE_GA, LISTPACK_EX_PRE_GA, METADATA, LISTPACK_EX = 22, 23, 24, 25


def length(n):
    if n < 64:
        return bytes([n])
    if n < 1 << 14:
        return bytes([0x40 | n >> 8, n & 0xFF])
    return b"\x81" + struct.pack(">Q", n)


def string(text):
    return length(len(text)) + text


def listpack(elements):
    body = b""
    for element in elements:
        # Times are stored as integers, not texts.
        is_time = isinstance(element, int)
        entry = b"\xf4" + struct.pack("<q", element) if is_time else bytes([0x80 | len(element)]) + element
        body += entry + bytes([len(entry)])
    return struct.pack("<IH", 6 + len(body) + 1, len(elements)) + body + b"\xff"


def table(fields, head=b"", base_ms=0):
    """Field by field; times are relative to `base_ms`, plus one, if given."""
    body = head + length(len(fields))
    for name, value, at_ms in fields:
        time = at_ms and (at_ms - base_ms + 1 if base_ms else at_ms)
        body += length(time) + string(name) + string(value)
    return body


def values(fields):
    """(type, value) of each type; `fields` are (name, value, Unix ms or 0)."""
    lowest = min(at_ms for _, _, at_ms in fields if at_ms)
    head = struct.pack("<Q", lowest)
    # The fields of a small hash are ordered by expiry, those without come last.
    ordered = sorted(fields, key=lambda field: field[2] or 1 << 60)
    packed = string(listpack([x for name, value, at in ordered for x in (name, value, at)]))
    return [
        (METADATA_PRE_GA, table(fields)),
        (LISTPACK_EX_PRE_GA, packed),
        (METADATA, table(fields, head, lowest)),
        (LISTPACK_EX, head + packed),
    ]


def rdb_file(fields, db=0):
    """A file with a hash `timed:TYPE` of each type, and some strings before them."""
    keys = b"".join(b"\x00" + string(b"plain:%d" % n) + string(b"value") for n in range(100))
    for kind, value in values(fields):
        keys += bytes([kind]) + string(b"timed:%d" % kind) + value
    # Without a checksum.
    return b"REDIS0012\xfe" + length(db) + keys + b"\xff" + bytes(8)


def crc64(data):
    """The checksum of payloads: CRC-64/REDIS."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x95AC9329AC4BC9B5 if crc & 1 else 0)
    return crc


def payload(kind, value):
    body = bytes([kind]) + value + struct.pack("<H", 12)
    return body + struct.pack("<Q", crc64(body))

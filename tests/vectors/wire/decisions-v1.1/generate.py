"""Writes the frozen message beside this file, from docs/wire-format.md alone."""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent))

from exchange import MASK, checksum  # noqa: E402


def item(body):
    return struct.pack("<H", len(body)) + body


def record(flags, chosen, tokens, marks, reason, first, second):
    body = struct.pack("<BQ5I", flags, chosen, *tokens)
    body += struct.pack("<H", len(marks)) + b"".join(struct.pack("<QI", *mark) for mark in marks)
    return item(body + struct.pack("<BQQ", reason, first, second))


def other(flags, reason, chosen, tokens, status):
    return item(struct.pack("<BBQIH", flags, reason, chosen, tokens, status))


def listed(items):
    return struct.pack("<H", len(items)) + b"".join(items)


records = [
    record(
        4, 0x1122334455667788, [4210, 4096, 16, 4200, 32],
        [(0xFEED, 1024), (MASK, 2048), (1, 0xFFFFFFFF)], 4, 0x0102030405060708, MASK - 1,
    ),
    record(3, 1, [9, 0, 0, 0, 0], [], 0, 0, 0),
]
others = [other(1, 17, 0x99AABBCCDDEEFF00, 300000, 503), other(0, 0, 0, 0, 0)]
counts = [struct.pack("<BI", 4, 1), struct.pack("<BI", 17, 0xFFFFFFFF)]
payload = struct.pack("<I", 3) + listed(records) + listed(others) + listed(counts)
header = b"PPDR" + struct.pack("<HHII", 1, 1, len(payload), 0)
message = header + struct.pack("<Q", checksum([header, payload])) + payload
(HERE / "decisions.hex").write_text(message.hex() + "\n")

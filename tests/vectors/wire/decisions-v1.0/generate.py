"""Writes the frozen message beside this file, from docs/wire-format.md alone."""
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent))

from exchange import MASK, checksum  # noqa: E402


def record(flags, chosen, tokens, marks):
    body = struct.pack("<BQ5I", flags, chosen, *tokens)
    body += struct.pack("<H", len(marks)) + b"".join(struct.pack("<QI", *mark) for mark in marks)
    return struct.pack("<H", len(body)) + body


records = [
    record(4, 0x1122334455667788, [4210, 4096, 16, 4200, 32], [(0xFEED, 1024), (MASK, 2048), (1, 0xFFFFFFFF)]),
    record(3, 1, [9, 0, 0, 0, 0], []),
]
payload = struct.pack("<IH", 3, len(records)) + b"".join(records)
header = b"PPDR" + struct.pack("<HHII", 1, 0, len(payload), 0)
message = header + struct.pack("<Q", checksum([header, payload])) + payload
(HERE / "decisions.hex").write_text(message.hex() + "\n")

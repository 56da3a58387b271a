"""Writes the frozen message beside this file, from docs/wire-format.md alone."""
import pathlib
import struct

HERE = pathlib.Path(__file__).parent
MASK = (1 << 64) - 1
K2 = 0x324CAD49C629665B


def checksum(parts):
    total = 0x7070706700000001

    def step(word):
        nonlocal total
        total ^= word
        total = ((total << 29) | (total >> 35)) & MASK
        total = total * K2 & MASK

    for part in parts:
        whole = len(part) // 8 * 8
        for at in range(0, whole, 8):
            step(int.from_bytes(part[at:at + 8], "little"))
        step(int.from_bytes(part[whole:], "little"))
        step(len(part))
    return total ^ (total >> 32)


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

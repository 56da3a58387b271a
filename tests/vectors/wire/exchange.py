"""The frozen messages since 1.1, from docs/wire-format.md alone. Versions differ by what is added behind."""
import struct

MASK = (1 << 64) - 1
K2 = 0x324CAD49C629665B
NONE = 0xFFFFFFFF
NO_RANK = 0xFFFF
MINOR = 0


def u8(n):
    return struct.pack("<B", n)


def u16(n):
    return struct.pack("<H", n)


def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n)


def string(text):
    raw = text.encode()
    return u16(len(raw)) + raw


def listed(values):
    return u16(len(values)) + b"".join(values)


def preamble(magic):
    return magic + u16(1) + u16(MINOR)


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


def adapter(name, replicas):
    first = replicas[0] if replicas else 0
    bits = bytearray((replicas[-1] - first) // 8 + 1 if replicas else 0)
    for replica in replicas:
        bits[(replica - first) // 8] |= 1 << (replica - first) % 8
    return string(name) + u16(first) + u16(len(bits)) + bytes(bits)


def head():
    pool = string("demo") + bytes([7] * 32) + u64(0xFEED) + u32(16) + u32(4210) + u8(1)
    pool += listed([string("demo"), string("d\u00e9mo")]) + listed([string("pool")])
    replicas = [
        u16(index) + u16(0) + u8(state) + u32(3) + u32(index) + u16(999) + string(f"127.0.0.1:{8101 + index}")
        for index, state in [(0, 0), (1, 1), (2, 2), (9, 3)]
    ]
    adapters = [adapter("sql", [0, 2, 9]), adapter("gr\u00f6\u00dfe/v2", [1]), adapter("nowhere", [])]
    paces = b"".join(u32(8000 + index) + u32(12500) + u16(100 * index) for index in [0, 1, 2, 9]) if MINOR >= 2 else b""
    ranks = b"".join(u16(index - 1 if index else NO_RANK) for index in [0, 1, 2, 9]) if MINOR >= 3 else b""
    return (
        preamble(b"PPHD") + u64(0x1122334455667788) + u32(3) + u32(64) + u64(1000) + u64(42)
        + listed([pool]) + listed(replicas) + listed(adapters) + paces + ranks
    )


def section(kind, flags, body):
    return u16(kind) + u16(flags) + u32(len(body)) + body


def answer_delta():
    page_delta = u32(0) + u32(2) + u64(MASK) + u32(9) + bytes([5] * 9) + u64(0) + u32(NONE)
    payload = (
        section(3, 0x8001, u64(3) + u64(9))
        + section(5, 0x8000, u32(3) + bytes([1, 2, 3]))
        + section(6, 0x8000, page_delta)
    )
    header = preamble(b"PPSA") + u64(5) + u32(1) + u32(4) + u32(3) + u32(len(payload))
    return header + u64(checksum([header, payload])) + payload


def framed(magic, payload):
    header = preamble(magic) + u32(len(payload)) + u32(0)
    return header + u64(checksum([header, payload])) + payload


def lists():
    work = [
        u64(place) + u32(requests) + u64(requests * 1000) + u64(requests * 8000 + 7)
        for place, requests in [(0x1122334455667788, 3), (MASK, 0)]
    ]
    sent = [
        u64(0xFEED) + u64(MASK) + u32(12) + u32(9988) + u16(4) + u8(3) + u16(1) + u16(0xFFFF) + u16(300),
        u64(1) + u64(0) + u32(0) + u32(5) + u16(0) + u8(0),
    ]
    return listed(work) + listed(sent)


def news_report():
    payload = string("envoy-gr\u00f6\u00dfe") + u64(9) + u64(77) + u64(1000) + u64(31) + u32(1000)
    return framed(b"PPNR", payload + lists())


def news_answer():
    return framed(b"PPNA", u64(77) + u64(1002) + u64(40) + u8(1) + u16(2) + lists())


def write(folder, minor):
    """All messages of version 1.`minor` into a folder."""
    global MINOR
    MINOR = minor
    if minor >= 2:
        (folder / "news-report.hex").write_text(news_report().hex() + "\n")
        (folder / "news-answer.hex").write_text(news_answer().hex() + "\n")
    (folder / "head.hex").write_text(head().hex() + "\n")
    (folder / "answer-delta.hex").write_text(answer_delta().hex() + "\n")

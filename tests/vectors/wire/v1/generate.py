#!/usr/bin/env python3
"""Block hashes and a page, written from docs/wire-format.md alone: shares no code with core.

Prints nothing and rewrites blocks.json and page.json beside itself. Both are frozen: a change is a
new version in a new folder, so running this must leave them as they are.
"""
import hashlib
import json
import pathlib
import struct

M64 = (1 << 64) - 1
K1 = 0x16B2A796B6664365
K2 = 0x324CAD49C629665B
CHECK_START = 0x7070706700000001


def rotl(x, n):
    return ((x << n) | (x >> (64 - n))) & M64


# ---- blocks ----

def absorb(acc, word):
    x = ((acc ^ word) * K1) & M64
    return (rotl(x, 32) * K2) & M64


def avalanche(x):
    x ^= x >> 32
    x = (x * K1) & M64
    x ^= x >> 29
    x = (x * K2) & M64
    return x ^ (x >> 32)


def cuts(prompt):
    start, out = 0, []
    for at in range(1, len(prompt)):
        last, byte, length = prompt[at - 1], prompt[at], at - start
        soft = length >= 256 and byte == 0x20 and 0x21 <= last <= 0x7E and last != 0x3E
        hard = length >= 320 and (byte & 0xC0 != 0x80 or length >= 324)
        if soft or hard:
            out.append((start, at, not soft))
            start = at
    return out


def hash_text(seed, prompt):
    acc, out = seed, []
    for start, end, hard in cuts(prompt):
        block = prompt[start:end]
        whole = len(block) // 8 * 8
        for at in range(0, whole, 8):
            acc = absorb(acc, int.from_bytes(block[at:at + 8], "little"))
        tail = int.from_bytes(block[whole:], "little")
        acc = avalanche(absorb(acc, tail | (len(block) - 256) << 56 | hard << 63))
        out.append({"end": end, "hard_cut": hard, "hash": f"{acc:016x}"})
    return out


def media_key(identifier):
    return hashlib.sha256(b"prefix-picker media identifier" + identifier.encode()).digest()[:16]


def hash_media(seed, parts):
    """Texts and media items in turn; an item is {"identifier", "placeholder"}."""
    prompt, items = b"", {}
    for part in parts:
        if isinstance(part, dict):
            items[len(prompt)] = media_key(part["identifier"])
            prompt += part["placeholder"].encode()
        else:
            prompt += part[0].encode() * part[1]
    acc, out = seed, []
    finished = cuts(prompt)
    # The bytes after the last cut have no hash.
    for start, end, hard in finished:
        pending = b""
        for at in range(start, end):
            if at in items:
                length = at - start
                last = prompt[at - 1] if at else 0
                state = (struct.pack("<Q", acc) + pending.ljust(7, b"\0") + bytes([last])
                         + struct.pack("<H", length) + bytes(6))
                mixed = hashlib.sha256(b"prefix-picker media item" + state + items[at]).digest()
                acc = int.from_bytes(mixed[:8], "little")
            pending += prompt[at:at + 1]
            if len(pending) == 8:
                acc, pending = absorb(acc, int.from_bytes(pending, "little")), b""
        tail = int.from_bytes(pending, "little")
        acc = avalanche(absorb(acc, tail | (end - start - 256) << 56 | hard << 63))
        out.append({"end": end, "hard_cut": hard, "hash": f"{acc:016x}"})
    return out


def hash_ids(seed, ids):
    acc, out = seed, []
    for start in range(0, len(ids) - 63, 64):
        for at in range(start, start + 64, 2):
            acc = absorb(acc, ids[at] | ids[at + 1] << 32)
        acc = avalanche(absorb(acc, 64))
        out.append(f"{acc:016x}")
    return out


def length_first(data):
    return struct.pack("<Q", len(data)) + data


def pool_key(secret, pool):
    parts = [b"prefix-picker pool key", secret.encode(), pool.encode()]
    return hashlib.sha256(b"".join(map(length_first, parts))).digest()


def seed_of(key, family, profile_hash, lora, salt):
    def optional(text):
        return b"\0" if text is None else b"\1" + length_first(text.encode())
    data = (length_first(b"prefix-picker seed") + struct.pack("<H", 1) + key
            + bytes([{"text": 1, "token_ids": 2, "predicted": 3}[family]])
            + struct.pack("<Q", profile_hash) + optional(lora) + optional(salt))
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "little")


def blocks():
    seeds = []
    for family, profile_hash, lora, salt in [
        ("text", 0, None, None),
        ("text", 0x0123456789ABCDEF, "adapter", None),
        ("token_ids", 0x0123456789ABCDEF, None, "salt"),
        ("predicted", M64, "", "é"),
    ]:
        key = pool_key("fleet secret", "pool-a")
        value = seed_of(key, family, profile_hash, lora, salt)
        seeds.append({"family": family, "profile_hash": f"{profile_hash:016x}", "lora": lora,
                      "salt": salt, "seed": f"{value:016x}"})
    seed = seed_of(pool_key("fleet secret", "pool-a"), "text", 0, None, None)
    texts = []
    # Each piece is repeated so many times; the prompt is all of them in a row.
    for pieces in [
        [["The quick brown fox jumps over the lazy dog. ", 40]],
        [["<|im_start|>user\n", 1], ["これは長い日本語の文章です。", 60], ["<|im_end|>\n", 1]],
        [["<div> </div> ", 80], ["data:image/png;base64,", 1], ["iVBORw0KGgo", 90], [" end ", 60]],
        [["        ", 100], ["x = 1\n", 100], ["🦀", 200], ["é", 500]],
        [["no block", 1]],
        [["", 1]],
    ]:
        prompt = "".join(piece * times for piece, times in pieces).encode()
        texts.append({"pieces": pieces, "blocks": hash_text(seed, prompt)})
    media = []
    image = lambda name: {"identifier": name, "placeholder": "<|image_pad|>"}
    for parts in [
        [["Look at this picture of a dog: ", 9], image("dog"), [" What is it? Say more. ", 30]],
        [image("first byte"), [" a b c d e f", 60]],
        [["x" * 319, 1], image("within a hard cut"), [" and so on", 40]],
        [["x" * 320, 1], image("right after one"), [" and so on", 40]],
        [["abcdefg", 3], image("one"), image("two"), ["é", 3], image("one"), ["text ", 120]],
    ]:
        media.append({"parts": parts, "blocks": hash_media(seed, parts)})
    ids = [(n * 2654435761) % (1 << 32) for n in range(200)]
    return {"fleet_secret": "fleet secret", "pool": "pool-a",
            "pool_key": pool_key("fleet secret", "pool-a").hex(), "seeds": seeds,
            "texts": texts, "media": media, "ids": {"count": 200, "multiplier": 2654435761,
                                    "hashes": hash_ids(seed, ids)}}


# ---- pages ----

def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def replica_set(replicas):
    as_list, following = varint(len(replicas) << 1), 0
    for replica in replicas:
        as_list += varint(replica - following)
        following = replica + 1
    first = replicas[0] // 8
    bits = bytearray(replicas[-1] // 8 - first + 1)
    for replica in replicas:
        bits[replica // 8 - first] |= 1 << replica % 8
    # Decided without counting the two varints, each taken as one byte.
    if len(bits) + 2 >= len(as_list):
        return as_list
    return varint(len(bits) << 1 | 1) + varint(first) + bytes(bits)


def holders(run):
    buckets = {}
    for replica, gpu, held in run["holders"]:
        if gpu:
            buckets.setdefault(gpu, []).append(replica)
        if held > gpu:
            buckets.setdefault(held | 0x80, []).append(replica)
    return b"".join(bytes([tag]) + replica_set(sorted(buckets[tag])) for tag in sorted(buckets))


def tokens(run, base):
    counts = run["tokens"]
    steps = [b - a + 4 for a, b in zip(counts, counts[1:])]
    first = counts[0] - base
    if not 0 <= first <= 0xFFFF or not all(0 <= step <= 0xFFFF for step in steps):
        return 2, b"".join(struct.pack("<I", count) for count in counts)
    if all(step <= 0xFF for step in steps):
        return 0, struct.pack("<H", first) + bytes(steps)
    return 1, struct.pack("<H", first) + b"".join(struct.pack("<H", step) for step in steps)


def group(spec):
    out = bytes([spec["split"] or 0]) + varint(spec["base_tokens"])
    runs = sorted(spec["runs"], key=lambda run: (run["start"], int(run["hashes"][0], 16) % (1 << 32)))
    for at, run in enumerate(runs):
        form, counts = tokens(run, spec["base_tokens"])
        held = holders(run)
        out += bytes([run["start"] | form << 5, len(run["hashes"]) - 1]) + varint(len(held))
        for digits in run["hashes"][1 if at == 0 else 0:]:
            out += struct.pack("<I", int(digits, 16) % (1 << 32))
        out += counts + held
    return out


def checksum(parts):
    total = CHECK_START
    for part in parts:
        whole = len(part) // 8 * 8
        words = [int.from_bytes(part[at:at + 8], "little") for at in range(0, whole, 8)]
        for word in words + [int.from_bytes(part[whole:], "little"), len(part)]:
            total = (rotl(total ^ word, 29) * K2) & M64
    return total ^ (total >> 32)


def page(meta, groups):
    groups = sorted(groups)
    payload = b"".join(struct.pack("<Q", anchor) for anchor, _ in groups)
    end = 0
    for _, body in groups:
        end += len(body)
        payload += struct.pack("<I", end)
    payload += b"".join(body for _, body in groups)
    head = b"PPPG" + struct.pack("<HHQQIIII", 1, 1, meta["epoch"], meta["seq"], meta["generation"],
                                 meta["index"], len(groups), len(payload))
    return head + struct.pack("<Q", checksum([head, payload])) + payload


def chain(name, length):
    return [hashlib.sha256(f"{name} {n}".encode()).hexdigest()[:16] for n in range(length)]


def pages():
    trunk, left, right, deep = chain("trunk", 40), chain("left", 10), chain("right", 3), chain("deep", 2)
    many = [[replica, 6, 6] for replica in range(0, 256, 2)]
    specs = [
        # Depth 0: the trunk's first 20 blocks, then it branches; the right branch is split off at 25.
        {"base_tokens": 0, "split": 25, "runs": [
            {"start": 0, "hashes": trunk[:20], "tokens": [64 * (n + 1) for n in range(20)],
             "holders": [[0, 20, 20], [1, 20, 20], [2, 0, 20], [3, 5, 12], [300, 1, 1]]},
            {"start": 20, "hashes": trunk[20:25], "tokens": [1340, 1336, 1700, 1764, 1828],
             "holders": [[0, 5, 5], [2, 0, 3]]},
            {"start": 20, "hashes": left[:5], "tokens": [1344, 1408, 1472, 1536, 1600],
             "holders": [[1, 5, 5]]}]},
        # Depth 25, behind the split.
        {"base_tokens": 1828, "split": None, "runs": [
            {"start": 0, "hashes": trunk[25:32], "tokens": [1900, 70000, 70064, 70128, 70192, 70256, 70320],
             "holders": [[0, 7, 7]]}]},
        {"base_tokens": 1600, "split": None, "runs": [
            {"start": 0, "hashes": left[5:], "tokens": [1664, 1728, 1792, 1856, 1920],
             "holders": [[1, 2, 5]]}]},
        # Depth 32: the next regular anchor.
        {"base_tokens": 70320, "split": None, "runs": [
            {"start": 0, "hashes": trunk[32:38], "tokens": [70384 + 64 * n for n in range(6)],
             "holders": many},
            {"start": 6, "hashes": trunk[38:], "tokens": [70768, 70832], "holders": [[0, 2, 2]]},
            {"start": 6, "hashes": right, "tokens": [70768, 70832, 70896], "holders": [[4, 0, 1]]}]},
        {"base_tokens": 0, "split": 1, "runs": [
            {"start": 0, "hashes": deep[:1], "tokens": [4], "holders": [[65535, 1, 1]]}]},
    ]
    meta = {"epoch": 0x1122334455667788, "generation": 3, "index": 0, "seq": len(specs)}
    bodies = [(int(spec["runs"][0]["hashes"][0], 16), group(spec)) for spec in specs]
    return {"meta": meta, "page_count": 1,
            "groups": [{"spec": spec, "body": body.hex()} for spec, (_, body) in zip(specs, bodies)],
            "page": page(meta, bodies).hex(),
            # Prompt, then per replica: gpu blocks, gpu tokens, any blocks, any tokens.
            "lookups": [
                {"hashes": trunk, "matches": {
                    "0": [40, 70832, 40, 70832], "1": [20, 1280, 20, 1280], "2": [0, 0, 23, 1700],
                    "3": [5, 320, 12, 768], "300": [1, 64, 1, 64],
                    **{str(replica): [38, 70704, 38, 70704] for replica in range(2, 256, 2)},
                }},
                {"hashes": trunk[:20] + left, "matches": {
                    "0": [20, 1280, 20, 1280], "1": [27, 1728, 30, 1920], "2": [0, 0, 20, 1280],
                    "3": [5, 320, 12, 768], "300": [1, 64, 1, 64]}},
                {"hashes": deep, "matches": {"65535": [1, 4, 1, 4]}},
                {"hashes": right, "matches": {}},
            ]}


if __name__ == "__main__":
    here = pathlib.Path(__file__).parent
    for name, content in [("blocks.json", blocks()), ("page.json", pages())]:
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (here / name).write_text(text + "\n", encoding="utf-8")

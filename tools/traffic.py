#!/usr/bin/env python3
"""Conversations of some agents through a gateway: each turn sends all that was said before.

usage: traffic.py [--url URL] [--model NAME] [--conversations N] [--turns N]
"""
import argparse
import json
import random
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

WORDS = "cache block prefix replica token prompt model engine queue batch layer weight page event route load".split()


def text(seed, words):
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(words))


def send(args, messages):
    body = {"model": args.model, "max_tokens": 16, "messages": messages}
    request = urllib.request.Request(
        args.url + "/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def converse(args, number):
    """One conversation; (prompt tokens, cached tokens) of all its turns."""
    # Three agents, each with instructions of its own that its conversations share.
    messages = [{"role": "system", "content": text(f"agent {number % 3} of {args.seed}", 600)}]
    prompt = cached = 0
    for turn in range(args.turns):
        messages.append({"role": "user", "content": text(f"{args.seed} {number} {turn}", 120)})
        answer = send(args, messages)
        usage = answer["usage"]
        prompt += usage["prompt_tokens"]
        cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    return prompt, cached


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:10000")
    parser.add_argument("--model", default="sim")
    parser.add_argument("--conversations", type=int, default=12)
    parser.add_argument("--turns", type=int, default=5)
    # Anew each time: what an earlier run has left cached is not found again.
    parser.add_argument("--seed", default=str(random.SystemRandom().getrandbits(64)))
    args = parser.parse_args()
    try:
        with ThreadPoolExecutor(4) as pool:
            sums = list(pool.map(lambda n: converse(args, n), range(args.conversations)))
    except OSError as error:
        sys.exit(f"{args.url}: {error} (does it run? make run)")
    prompt, cached = (sum(column) for column in zip(*sums))
    print(f"{args.conversations * args.turns} requests, {prompt} prompt tokens, {cached} found cached ({100 * cached // prompt} %)")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Runs the commands of README.md as a new user would, from the first to the last.

The commands are those that stand there: of the sections named below, each line of a code block that begins
with four spaces and a program. Output that README shows is told apart by that.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECTIONS = ["Try it", "From shadow to enforced"]
PROGRAMS = ("make ", "target/release/prefix-picker ")
# As in a shell of one's own, also where make runs this: makes in it would say which folder they are in.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}


def commands(readme):
    for title in SECTIONS:
        match = re.search(rf"^## {re.escape(title)}$(.*?)^## ", readme, re.M | re.S)
        assert match, f"README.md has no section {title!r}"
        for line in match[1].splitlines():
            if line.startswith("    ") and line.strip().startswith(PROGRAMS):
                yield line.strip()


def run(command):
    print(f"$ {command}", flush=True)
    # What it starts in the background must not hold our pipe open: run.sh redirects all of it.
    done = subprocess.run(command, shell=True, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(done.stdout[-3000:], flush=True)
    assert done.returncode == 0, f"{command}: exit code {done.returncode}"
    return done.stdout


def curl_twice(output):
    line = output.strip().splitlines()[-1]
    assert line.startswith("curl "), f"make run ends with {line!r}"
    answers = [run(line)]
    time.sleep(2)  # what it left in a cache is told in milliseconds
    answers.append(run(line))
    engines = [re.search(r"^x-engine: (.*)$", answer, re.M)[1].strip() for answer in answers]
    cached = [json.loads(answer[answer.index("{"):])["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
    assert engines[0] == engines[1], engines
    assert cached[0] == 0 and cached[1] > 0, cached


def report(command):
    """The report's sums, by its own --json."""
    answer = json.loads(run(command + " --json"))
    (pool,) = answer["pools"]
    return pool


def until_told(command, requests):
    """Envoy tells of requests a moment after they have ended."""
    for _ in range(30):
        done = subprocess.run(command + " --json", shell=True, cwd=ROOT, capture_output=True, text=True)
        pools = json.loads(done.stdout or '{"pools": []}')["pools"]
        if sum(pool[mode]["requests"] for pool in pools for mode in ("shadow", "enforced")) >= requests:
            return
        time.sleep(1)


def hit_rate(sums):
    return sums["measured"]["cached_tokens"] / sums["measured"]["prompt_tokens"]


def main():
    todo = list(commands((ROOT / "README.md").read_text()))
    kinds = [command.split()[1] for command in todo]
    assert kinds == "run run traffic report mode traffic report doctor stop".split(), todo
    try:
        pools = []
        for number, command in enumerate(todo):
            if " report " in command:
                until_told(command, 60 * (len(pools) + 1))
            output = run(command)
            if number == 0:
                curl_twice(output)
            if " report " in command:
                assert "shadow" in output and "measured" in output, "the report says too little"
                pools.append(report(command))
        shadow, both = pools
        assert shadow["shadow"]["requests"] == 60 and shadow["enforced"]["requests"] == 0, shadow
        assert both["shadow"]["requests"] == 60 and both["enforced"]["requests"] == 60, both
        rates = hit_rate(both["shadow"]), hit_rate(both["enforced"])
        print("found cached: %.0f %% in shadow, %.0f %% enforced" % tuple(100 * rate for rate in rates))
        assert rates[1] > rates[0], rates
    finally:
        subprocess.run(["tools/run.sh", "stop"], cwd=ROOT)


if __name__ == "__main__":
    main()
    sys.stdout.write("ok\n")

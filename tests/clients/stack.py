"""What the tests run against: simulated engines, the control plane and Envoy, from the shipped configuration.

Only ports and paths differ from envoy/envoy.yaml and envoy/prefix-picker.yaml, and there is a second pool of
engines, which embed: a real engine, too, serves either chats or embeddings.
"""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
READY_S = 60


HELD = []


def free_ports(count):
    """Ports that nobody else gets until this process ends.

    They are bound. SO_REUSEADDR, set after that, lets a server bind and listen there all the same.
    """
    new = [socket.socket() for _ in range(count)]
    for one in new:
        one.bind(("", 0))
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    HELD.extend(new)
    return [one.getsockname()[1] for one in new]


def get(url):
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


class Stack:
    """`engines` answer chats at Envoy's `url`, `embedders` embed there."""

    def __init__(self, folder, served_by=None, sha256=None):
        """`served_by`: Envoy fetches the filter from this local port instead of reading the file."""
        self.folder = Path(folder)
        self.served_by, self.sha256 = served_by, sha256
        self.processes = []
        self.bin = Path(os.environ.get("BIN", ROOT / "target/release"))
        self.wasm = os.environ.get("WASM", ROOT / "target/wasm32-wasip1/wasm/prefix_picker_filter.wasm")
        ports = iter(free_ports(18))
        self.port, self.admin, self.control = next(ports), next(ports), next(ports)
        self.engines = [(next(ports), next(ports), next(ports)) for _ in range(3)]
        self.embedders = [(next(ports), next(ports), next(ports)) for _ in range(2)]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def launch(self, name, *command, **environment):
        """Starts a program of this stack; its output goes to NAME.log."""
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                [str(part) for part in command], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, **environment}, start_new_session=True,
            )
        self.processes.append((name, process))

    def wait(self, what, ready, seconds=READY_S):
        """Until `ready()` is true; what it raises is a no."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if ready():
                    return
            except OSError:
                pass
            for name, process in self.processes:
                if process.poll() is not None:
                    raise RuntimeError(f"{name} has ended: {self.tail(name)}")
            time.sleep(0.1)
        raise RuntimeError(f"{what}: not within {seconds} s; logs are in {self.folder}")

    def tail(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def stop(self):
        for _, process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for _, process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def access_log(self):
        """Envoy's entries so far, those of requests under `/v1/`."""
        entries = []
        for line in (self.folder / "envoy.log").read_text(errors="replace").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and str(entry.get("path")).startswith("/v1/"):
                entries.append(entry)
        return entries

    def wait_for_entries(self, count):
        self.wait(f"{count} entries of the access log", lambda: len(self.access_log()) >= count, 10)
        return self.access_log()

    def refuse(self, requests):
        """So many requests are refused by each engine, as busy ones do; 0 ends it."""
        for port, *_ in self.engines:
            post(f"http://127.0.0.1:{port}/sim/fault", {"kind": "refuse", "requests": requests, "status": 503})

    def _start(self):
        for pool, runner in ((self.engines, "generate"), (self.embedders, "pooling")):
            for http, events, replay in pool:
                self.launch(
                    f"{runner}-{http}", self.bin / "engine-sim", "--runner", runner, "--listen", f"127.0.0.1:{http}",
                    "--events", f"tcp://*:{events}", "--replay", f"tcp://*:{replay}", "--speed", "20",
                    "--noncanonical-rate", "0",
                )
        control = self.folder / "prefix-picker.yaml"
        control.write_text(json.dumps(self._control_plane()))
        self.launch("control-plane", self.bin / "prefix-picker", "serve", "--config", control)
        envoy = self.folder / "envoy.json"
        envoy.write_text(json.dumps(self._envoy()))
        self.launch(
            "envoy", os.environ["ENVOY"], "-c", envoy, "--concurrency", "2", "--disable-hot-restart",
            "--file-flush-interval-msec", "100", "--log-level", "warning",
        )
        for http, *_ in self.engines + self.embedders:
            self.wait("an engine", lambda http=http: get(f"http://127.0.0.1:{http}/health") == "")
        self.wait("the control plane", lambda: bool(get(f"http://127.0.0.1:{self.control}/readyz")))
        if self.served_by:
            return
        loads = f"http://127.0.0.1:{self.admin}/stats?filter=prefix_picker_filter_sync_loads_total"
        self.wait("the table in Envoy", lambda: any(
            line.split(": ")[-1].isdigit() and int(line.split(": ")[-1]) > 0 for line in get(loads).splitlines()
        ))

    def _control_plane(self):
        config = yaml.safe_load((ROOT / "envoy/prefix-picker.yaml").read_text())
        config["listen"] = f"127.0.0.1:{self.control}"
        config["data_dir"] = str(self.folder / "state")
        pool = config["pools"][0]

        def replicas(engines):
            return [
                {"name": f"engine-{http}", "endpoint": f"127.0.0.1:{http}", "events": f"tcp://127.0.0.1:{events}",
                 "replay": f"tcp://127.0.0.1:{replay}"}
                for http, events, replay in engines
            ]

        pool["replicas"] = replicas(self.engines)
        config["pools"].append({**pool, "name": "embed", "clusters": ["embed"], "replicas": replicas(self.embedders)})
        return config

    def _envoy(self):
        config = yaml.safe_load((ROOT / "envoy/envoy.yaml").read_text())
        config["admin"]["address"]["socket_address"]["port_value"] = self.admin
        resources = config["static_resources"]
        listener = resources["listeners"][0]
        listener["address"]["socket_address"]["port_value"] = self.port
        manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
        wasm = manager["http_filters"][0]["typed_config"]["config"]["vm_config"]
        wasm["code"]["local"]["filename"] = str(self.wasm)
        if self.served_by:
            uri = {"uri": f"http://127.0.0.1:{self.served_by}/filter.wasm", "cluster": "files", "timeout": "10s"}
            wasm["code"] = {"remote": {"http_uri": uri, "sha256": self.sha256}}
        routes = manager["route_config"]["virtual_hosts"][0]["routes"]
        embed = json.loads(json.dumps(routes[0]))
        embed["match"] = {"prefix": "/v1/embeddings"}
        embed["route"]["cluster"] = "embed"
        routes.insert(0, embed)
        pool, control = resources["clusters"]
        resources["clusters"].append(cluster(pool, "embed", [http for http, *_ in self.embedders]))
        if self.served_by:
            resources["clusters"].append(cluster(control, "files", [self.served_by]))
        resources["clusters"][0] = cluster(pool, "pool", [http for http, *_ in self.engines])
        resources["clusters"][1] = cluster(control, control["name"], [self.control])
        return config


def cluster(like, name, ports):
    """A copy of a cluster with other endpoints."""
    copy = json.loads(json.dumps(like))
    copy["name"] = copy["load_assignment"]["cluster_name"] = name
    copy["load_assignment"]["endpoints"] = [{"lb_endpoints": [
        {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}} for port in ports
    ]}]
    return copy

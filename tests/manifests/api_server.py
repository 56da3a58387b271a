"""So much of a Kubernetes API server that kubectl and Helm can create, patch and delete objects in it. It keeps
them, and makes nothing of them: no pods, no defaults, and schemas are not looked at."""

import http.server
import json
import threading
import urllib.parse

import kubernetes_protobuf

# What it knows: by group and version, names of resources and kinds.
KINDS = {
    "v1": {"namespaces": "Namespace", "secrets": "Secret", "configmaps": "ConfigMap", "services": "Service", "serviceaccounts": "ServiceAccount"},
    "apps/v1": {"statefulsets": "StatefulSet"},
    "policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "networking.k8s.io/v1": {"networkpolicies": "NetworkPolicy"},
    "rbac.authorization.k8s.io/v1": {"roles": "Role", "rolebindings": "RoleBinding"},
}


def discovery(path):
    """What a path of discovery answers, or None."""
    version = lambda gv: {"groupVersion": gv, "version": gv.split("/")[-1]}
    if path == "/version":
        return {"major": "1", "minor": "33", "gitVersion": "v1.33.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [{"name": gv.split("/")[0], "versions": [version(gv)], "preferredVersion": version(gv)} for gv in KINDS if "/" in gv]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    gv = path.removeprefix("/apis/" if path.startswith("/apis/") else "/api/")
    if gv not in KINDS:
        return None
    verbs = ["create", "delete", "get", "list", "patch", "update"]
    resources = [
        {"name": name, "singularName": kind.lower(), "kind": kind, "namespaced": kind != "Namespace", "verbs": verbs}
        for name, kind in KINDS[gv].items()
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": resources}


def merged(old, patch):
    """A merge patch. Of strategic ones only maps are merged; that is enough for annotations and data."""
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return patch
    new = {**old, **{k: merged(old.get(k), v) for k, v in patch.items() if not k.startswith("$")}}
    return {k: v for k, v in new.items() if v is not None}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = urllib.parse.urlsplit(self.path)
        if path.path == "/openapi/v2":
            # An empty document: clients check nothing by it.
            return self.answer(200, b"", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
        found = discovery(path.path) or self.server.objects.get(path.path)
        if found:
            return self.answer(200, found)
        if path.path.rsplit("/", 1)[-1] not in {name for names in KINDS.values() for name in names}:
            return self.not_found()
        labels = urllib.parse.parse_qs(path.query).get("labelSelector", [""])[0]
        wanted = dict(part.split("=") for part in labels.split(",") if part)
        inside = [o for name, o in self.server.objects.items() if name.rsplit("/", 1)[0] == path.path]
        items = [o for o in inside if wanted.items() <= o["metadata"].get("labels", {}).items()]
        return self.answer(200, {"kind": items[0]["kind"] + "List" if items else "List", "apiVersion": "v1", "items": items})

    def do_POST(self):
        made = self.body()
        return self.keep(f"{self.plain()}/{made['metadata']['name']}", made, 201)

    def do_PUT(self):
        return self.keep(self.plain(), self.body(), 200)

    def do_PATCH(self):
        old = self.server.objects.get(self.plain())
        return self.keep(self.plain(), merged(old, self.body()), 200) if old else self.not_found()

    def do_DELETE(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        old = self.server.objects.pop(self.plain(), None)
        return self.answer(200, old) if old else self.not_found()

    def keep(self, name, made, status):
        self.server.objects[name] = made
        return self.answer(status, made)

    def plain(self):
        return self.path.split("?")[0]

    def body(self):
        text = self.rfile.read(int(self.headers.get("content-length") or 0))
        if text.startswith(kubernetes_protobuf.MAGIC):
            return kubernetes_protobuf.decoded(text)
        return json.loads(text) if text else None

    def not_found(self):
        said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "message": f"no {self.path}"}
        return self.answer(404, said)

    def answer(self, status, content, kind="application/json"):
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class ApiServer(http.server.ThreadingHTTPServer):
    """Serves from the moment it is made; `objects` are by path."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def kubeconfig(self):
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server_address[1]}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        user = {"name": "u", "user": {}}
        return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [cluster], "contexts": [context], "users": [user]})

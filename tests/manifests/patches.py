"""Patches as gateways apply them: protobuf merge (Istio) and JSON Patch (Envoy Gateway)."""

import copy


def merged(base, more):
    """Protobuf's merge: messages by field, lists one behind the other, all else replaced."""
    if isinstance(base, dict) and isinstance(more, dict):
        out = dict(base)
        for key, value in more.items():
            out[key] = merged(out[key], value) if key in out else copy.deepcopy(value)
        return out
    if isinstance(base, list) and isinstance(more, list):
        return base + copy.deepcopy(more)
    return copy.deepcopy(more)


def json_patch(document, operation):
    """One RFC 6902 operation, in place. Only `add`, which is all that the manifests use."""
    assert operation["op"] == "add", operation
    *parents, last = operation["path"].strip("/").split("/")
    at = document
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    if isinstance(at, list):
        at.insert(len(at) if last == "-" else int(last), copy.deepcopy(operation["value"]))
    else:
        at[last] = copy.deepcopy(operation["value"])


def found(document, key):
    """All values of a key, at any depth: JSONPath's `..key`."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key:
                yield value
            yield from found(value, key)
    elif isinstance(document, list):
        for value in document:
            yield from found(value, key)

"""Kubernetes' protobuf, so much as Namespaces and Secrets need: kubectl and Helm write these so. Numbers of fields:
k8s.io/api/core/v1/generated.proto, and those of apimachinery."""

import base64

MAGIC = b"k8s\0"


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at


def fields(data):
    """Numbers and values, in their order. Of wire types only varints and what has a length."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        else:
            assert key & 7 == 0, f"wire type {key & 7}"
        yield key >> 3, value


def strings(data, wanted):
    return {wanted[number]: value.decode() for number, value in fields(data) if number in wanted and value}


def entries(data, number):
    """A map, as it is in field `number`."""
    pairs = [dict(fields(value)) for n, value in fields(data) if n == number]
    return {pair[1].decode(): pair.get(2, b"") for pair in pairs}


def decoded(data):
    """The object as JSON has it."""
    envelope = dict(fields(data.removeprefix(MAGIC)))
    made = strings(envelope[1], {1: "apiVersion", 2: "kind"})
    raw = dict(fields(envelope[2]))
    made["metadata"] = strings(raw[1], {1: "name", 3: "namespace"})
    made["metadata"]["labels"] = {k: v.decode() for k, v in entries(raw[1], 11).items()}
    if made["kind"] == "Secret":
        made["type"] = raw.get(3, b"Opaque").decode()
        made["data"] = {k: base64.b64encode(v).decode() for k, v in entries(envelope[2], 2).items()}
    else:
        assert made["kind"] == "Namespace", made
    return made

#!/usr/bin/env python3
"""Makes ../vectors/chat-template.jsonl: request bodies and the prompts Python's Jinja2 renders for them.

    venv/bin/pip install jinja2==3.1.6
    venv/bin/python scripts/make_template_vectors.py

Jinja2 is set up as transformers does (trimmed blocks, its own tojson); what vLLM does to messages and tools
before rendering is written out below.
"""
import json, pathlib
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).resolve().parent.parent
env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
env.filters["tojson"] = lambda x, **k: json.dumps(x, ensure_ascii=False, **k)
template = env.from_string((HERE / "model/chat_template.jinja").read_text(encoding="utf-8"))
TAG = "CONTINUE_FINAL_MESSAGE_TAG "

def text_of(content):
    if content is None: return ""
    if isinstance(content, str): return content
    return "\n".join(p if isinstance(p, str) else p["text"] for p in content)

def message_of(m):
    out = {"role": m["role"], "content": text_of(m.get("content"))}
    if m.get("tool_calls"):
        out["tool_calls"] = []
        for call in m["tool_calls"]:
            args = call["function"].get("arguments")
            try: args = json.loads(args) if isinstance(args, str) else args
            except ValueError: args = {}
            out["tool_calls"].append({"type": "function", "function": {"name": call["function"]["name"], "arguments": args if isinstance(args, dict) else {}}})
    return out

def tool_of(t):
    f = t["function"]
    return {"type": t.get("type", "function"), "function": {"name": f["name"], "description": f.get("description"), "parameters": f.get("parameters"),
            **{k: f[k] for k in ("strict", "defer_loading") if f.get(k) is not None}}}

def render(body):
    messages = [message_of(m) for m in body["messages"]]
    if any(m["role"] == "developer" for m in messages):
        system = "\n\n".join(m["content"] for m in messages if m["role"] in ("system", "developer"))
        messages = [{"role": "system", "content": system}] + [m for m in messages if m["role"] not in ("system", "developer")]
    go_on = body.get("continue_final_message", False)
    if go_on: messages[-1]["content"] += TAG
    prompt = template.render(messages=messages, tools=[tool_of(t) for t in body["tools"]] if body.get("tools") else None,
                             add_generation_prompt=body.get("add_generation_prompt", True))
    return prompt[:prompt.rindex(TAG)] if go_on else prompt

S = {"role": "system", "content": "You are careful. \n Be brief."}
U = lambda text: {"role": "user", "content": text}
A = lambda text, *calls: {"role": "assistant", "content": text, **({"tool_calls": [{"id": f"call_{i}", "type": "function", "function": {"name": n, "arguments": a}} for i, (n, a) in enumerate(calls)]} if calls else {})}
T = lambda text: {"role": "tool", "tool_call_id": "call_0", "content": text}
tools = [{"type": "function", "function": {"name": "track", "description": "Find a parcel – “number” <b>&amp;</b> 'x' 🚚", "parameters": {"type": "object", "properties": {
            "number": {"type": "string", "description": "the parcel's number\nor \"code\" \\ path\tend"}, "deep": {"type": "boolean", "default": False}, "ratio": {"type": "number", "minimum": 1e-07, "maximum": 1e16, "default": 0.25}}, "required": ["number"]}}},
         {"type": "function", "function": {"name": "now", "strict": True, "unknown": 1}, "extra": 2}]
cases = {
    "one user turn": dict(messages=[U("Hello")]),
    "system": dict(messages=[S, U("Hello")]),
    "multi-turn": dict(messages=[S, U("a"), A("b"), U("c"), A("d"), U("e")]),
    "no generation prompt": dict(messages=[S, U("a"), A("b")], add_generation_prompt=False),
    "unicode": dict(messages=[S, U("Größe 日本語 🚀👩‍👩‍👧 مرحبا नमस्ते e\u0301 \u00a0\u200b\u2028 ½"), A("谢谢！😀"), U("ok")]),
    "white space and newlines": dict(messages=[S, U("  \n\n x \r\n\t"), A("\n"), U("")]),
    "special tokens in content": dict(messages=[U("<|im_end|>\n<|im_start|>assistant\n<tool_call> {{ 7 }} {% if %}")]),
    "tools": dict(messages=[U("where?")], tools=tools),
    "tools and system": dict(messages=[S, U("where?")], tools=tools),
    "tool call, null content": dict(messages=[S, U("where?"), A(None, ("track", '{"number": "4711", "deep": true, "ratio": 1.0}'))], tools=tools),
    "tool call with text": dict(messages=[S, U("where?"), A("Let me look.", ("track", '{"number":"ü\\u00fc\\n"}'))], tools=tools),
    "tool result": dict(messages=[S, U("where?"), A(None, ("track", '{"number": "1"}')), T('{"at": "Lyon"}')], tools=tools),
    "two calls, two results": dict(messages=[S, U("where?"), A("", ("track", '{"number": "1"}'), ("now", "{}")), T("a"), T("b"), A("There."), U("thanks")], tools=tools),
    "results without tools": dict(messages=[U("x"), A(None, ("now", "")), T("a"), U("y"), T("b")]),
    "arguments as an object": dict(messages=[U("x"), A(None, ("track", {"number": "1", "nested": {"a": [1, 2.5, None, False, 1e-05]}}))]),
    "arguments that are no object": dict(messages=[U("x"), A(None, ("a", "[1]"), ("b", "not json"), ("c", None))]),
    "empty tool_calls": dict(messages=[U("x"), {**A("y"), "tool_calls": []}, U("z")]),
    "content parts": dict(messages=[{"role": "system", "content": [{"type": "text", "text": "s1"}, {"type": "text", "text": "s2"}]}, U([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}])]),
    "tool result in parts": dict(messages=[U("x"), A(None, ("now", "{}")), T([{"type": "text", "text": "1"}, {"type": "text", "text": "2"}])]),
    "empty part list": dict(messages=[U([]), A(None), U("x")]),
    "late system message": dict(messages=[U("x"), S, U("y")]),
    "two system messages": dict(messages=[S, {"role": "system", "content": "More."}, U("y")]),
    "developer": dict(messages=[{"role": "developer", "content": "dev"}, U("y")]),
    "developer and system": dict(messages=[S, U("x"), {"role": "developer", "content": "dev"}, U("y")]),
    "continue the final message": dict(messages=[S, U("x"), A("It is")], add_generation_prompt=False, continue_final_message=True),
    "unknown role": dict(messages=[U("x"), {"role": "critic", "content": "hm"}, U("y")]),
    "first message is the assistant's": dict(messages=[A("Welcome"), U("x")]),
}
with open(HERE / "vectors/chat-template.jsonl", "w", encoding="utf-8") as out:
    for name, body in cases.items():
        out.write(json.dumps({"name": name, "body": body, "prompt": render(body)}, ensure_ascii=False) + "\n")
print(len(cases), "vectors")

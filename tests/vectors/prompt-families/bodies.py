"""Random chat bodies, most of them sound, some odd: what clients of these models send."""
import random

TEXTS = ["hello", "", "  spaced  ", "line\nbreak\n", "naïve 天气 🚀", "quote \" ' \\ </s> <b>", "\x1fcontrol\x00",
         "cafe\u0301", "{curly} {0} {{x}}", "<|end|><|start|>assistant", "<think>no</think>", "[INST] x [/INST]",
         "<｜User｜>fake", "a // b\n// c", "x-anthropic-billing-header: cch=1\nrest", "\n\n", "0.1 ½ \u2028 z"]


class Bodies:
    def __init__(self, seed, roles, odd=0.04):
        self.r, self.roles, self.odd = random.Random(seed), roles, odd

    def maybe(self, p):
        return self.r.random() < p

    def rare(self):
        return self.r.random() < self.odd

    def text(self):
        return self.r.choice(TEXTS) if self.maybe(.8) else " ".join(self.r.choice(TEXTS) for _ in range(3))

    def part(self):
        k = self.r.randrange(20)
        if self.rare():
            return self.r.choice([
                {"type": "image_url", "image_url": {"url": "data:bad"}}, {"type": "tool_reference", "name": "f"},
                {"type": "thinking", "thinking": self.text(), "closed": True}, {"type": "refusal", "refusal": self.text()},
                {"type": "text", "text": None}, {"type": "text"}, {"type": "nope"}, 5, self.text()])
        if k < 16:
            return {"type": "text", "text": self.text()}
        if k < 18:
            return {"type": "text", "text": self.text(), "cache_control": {"type": "ephemeral"}}
        return {"type": self.r.choice(["input_text", "output_text"]), "text": self.text()}

    def content(self):
        if self.maybe(.7):
            return self.text()
        if self.rare():
            return None
        return [self.part() for _ in range(self.r.randrange(0 if self.rare() else 1, 4))]

    def arguments(self):
        return self.r.choice([
            '{"city": "Köln", "n": 1.0, "items": [1, 2e3], "deep": {"a": null, "b": [true, "x"]}}', "{}", ' {"b" : true} ',
            '{"a": 1, "a": 2}', '{"big": 12345678901234567890, "small": 1e-7}', '{"text": "line\\nbreak \\"q\\" é"}',
            '{"a": {}, "b": [], "c": ""}']) if not self.rare() else self.r.choice(
            ["", "[]", "not json", "null", '"{\\"x\\": 1}"', '"{}"', {"x": 1}, None, "5"])

    def call(self, n):
        c = {"id": "c%d" % n, "type": "function",
             "function": {"name": self.r.choice(["f", "get_weather"]), "arguments": self.arguments()}}
        if self.maybe(.1):
            c = dict(reversed(list(c.items())))
        if self.rare():
            c["extra"] = 1
        if self.rare():
            c.pop(self.r.choice(["id", "type"]))
        if self.rare():
            c["function"].pop(self.r.choice(["name", "arguments"]))
        return c

    def schema(self, depth=0):
        k = self.r.randrange(9 if depth < 3 else 6)
        s = {}
        if k == 0:
            s = {"type": "string"}
            if self.maybe(.4):
                s["enum"] = self.r.choice([["ä", "<"], ["a", 1, None], []])
        elif k == 1:
            s = {"type": self.r.choice(["number", "integer", "boolean", "null", "strange"])}
        elif k == 2:
            s = {"type": self.r.choice([["string", "null"], ["integer", "number"], [], [1]])}
        elif k == 3:
            s = {}
        elif k == 4:
            s = {"type": "array"}
            if self.maybe(.7):
                s["items"] = self.schema(depth + 1)
        elif k == 5:
            s = {"enum": ["x", "y"]}
        elif k == 6:
            s = {self.r.choice(["oneOf", "anyOf"]): [self.schema(depth + 1) for _ in range(self.r.randrange(0, 3))]}
        else:
            s = {"type": "object", "properties": {self.r.choice(["x", "größe", "a b", "z%d" % i]): self.schema(depth + 1)
                                                  for i in range(self.r.randrange(0, 4))}}
            if self.maybe(.6):
                s["required"] = self.r.sample(["x", "größe", "z0", "z1"], 2)
        for key, values in (("description", [self.text(), "Its size.", "two\nlines"]), ("title", ["Title"]),
                            ("default", ["d", 1, 0.1, 1e-7, 1e20, None, True, [1, "a"], {"k": "v"}]),
                            ("nullable", [True, False]), ("examples", [["e1", 2, "e2"], [], "no list"])):
            if self.maybe(.2):
                s[key] = self.r.choice(values)
        return s

    def parameters(self):
        s = {"type": "object", "properties": {n: self.schema() for n in self.r.sample(["x", "größe", "unit", "z1"], 2)}}
        if self.maybe(.7):
            s["required"] = ["x"]
        if self.maybe(.2):
            s["additionalProperties"] = False
        if self.maybe(.2):
            s["description"] = "All of it."
        return s

    def tool(self):
        f = {"name": self.r.choice(["f", "get_weather"])}
        if self.maybe(.8):
            f["parameters"] = self.parameters() if not self.rare() else self.schema()
        if self.maybe(.8):
            f["description"] = self.text()
        if self.maybe(.15):
            f["strict"] = self.r.choice([True, False, None])
        if self.rare():
            f["zz"] = 1
        t = {"type": "function", "function": f}
        if self.rare():
            t.pop("type")
        if self.rare():
            t["defer_loading"] = True
        return t

    def message(self, role, ids):
        m = {"role": role, "content": self.content()}
        if role == "assistant":
            if self.maybe(.35):
                m["tool_calls"] = [self.call(i) for i in range(self.r.randrange(0 if self.rare() else 1, 4))]
                ids[:] = [c.get("id") for c in m["tool_calls"]]
                if self.maybe(.5):
                    m["content"] = self.r.choice([None, ""])
                if self.rare():
                    m.pop("content")
            if self.maybe(.4):
                m[self.r.choice(["reasoning", "reasoning_content"])] = self.r.choice([self.text(), self.text(), "", None])
        if role == "tool":
            m["tool_call_id"] = self.r.choice(ids) if ids and not self.rare() else "c9"
        if self.rare():
            m["name"] = self.r.choice(["bob", ""])
        if self.maybe(.02):
            m["task"] = self.r.choice(["action", "query", "authority", "domain", "title", "read_url", "nope", None])
        if self.rare():
            m.update(self.r.choice([{"unknown": {"a": 1}}, {"prefix": True}, {"wo_eos": True},
                                    {"response_format": {"type": "json"}}, {"tools": [self.tool()]}]))
        if role == "developer" and self.maybe(.3):
            m["tools"] = [self.tool()]
        return m

    def messages(self):
        out, ids, last = [], [], None
        if self.maybe(.5):
            out.append(self.message(self.r.choice(["system", "system", "developer"]) if "developer" in self.roles else "system", ids))
        for _ in range(self.r.randrange(1, 7)):
            last = out[-1] if out else {"role": None}
            if last.get("tool_calls") and not self.rare():
                order = list(range(len(last["tool_calls"])))
                self.r.shuffle(order)
                for i in order if not self.rare() else order[1:]:
                    m = self.message("tool", ids)
                    if ids and ids[i]:
                        m["tool_call_id"] = ids[i]
                    out.append(m)
                continue
            if self.maybe(.75):
                role = "assistant" if last["role"] in ("user", "tool") else "user"
            else:
                role = self.r.choice(self.roles)
            out.append(self.message(role, ids))
        if out[-1]["role"] == "assistant" and self.maybe(.7):
            out.append(self.message("user", ids))
        return out

    def chat(self, kwargs=()):
        b = {"model": "m", "messages": self.messages()}
        if self.maybe(.4):
            b["tools"] = [self.tool() for _ in range(self.r.randrange(0 if self.rare() else 1, 3))]
            if self.maybe(.3):
                b["tool_choice"] = self.r.choice(["none", "auto", "required"])
        if kwargs and self.maybe(.5):
            b["chat_template_kwargs"] = self.r.choice(kwargs)
        if self.maybe(.3):
            b["reasoning_effort"] = self.r.choice(["none", "low", "medium", "high", "minimal", "xhigh", "max", None])
        if self.rare():
            b["add_generation_prompt"] = False
            b["continue_final_message"] = self.r.choice([True, False])
        return b

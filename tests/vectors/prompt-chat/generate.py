"""Random odd chat bodies, and what vLLM's own code makes of them.

    pip install pydantic openai openai-harmony transformers jinja2 pillow numpy
    python generate.py VLLM_PACKAGE_FOLDER OUT.jsonl [SEED [COUNT]]

VLLM_PACKAGE_FOLDER is the folder `vllm` of an unpacked vLLM 0.32 wheel. Only its request models, chat
parsing and renderer are run; whatever else they import (torch, the engine) is replaced by stand-ins.
"""
import collections, json, random, sys, types, importlib.util, importlib.abc, importlib.machinery
from unittest.mock import MagicMock
class M(types.ModuleType):
    def __getattr__(self, n):
        if n.startswith("__"): raise AttributeError(n)
        if n.isupper() and len(n)>1: v = 1000
        elif n[0].isupper():
            v = type(n,(Exception,) if n.endswith("Error") else (),{"__class_getitem__":classmethod(lambda c,i:c),"__get_pydantic_core_schema__":classmethod(lambda c,s,h:__import__("pydantic_core").core_schema.any_schema()),"__init__":lambda self,*a,**k:None})
        else: v = MagicMock(name=n)
        setattr(self,n,v); return v
class F(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("torch","vllm","mistral_common"):
            if name in REAL: return importlib.util.spec_from_file_location(name, REAL[name])
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        m=M(spec.name); m.__path__=[]; return m
    def exec_module(self, m): pass
B = sys.argv[1].rstrip("/") + "/"
REAL={"vllm.exceptions":B+"exceptions.py","vllm.entrypoints.serve.engine.protocol":B+"entrypoints/serve/engine/protocol.py","vllm.entrypoints.generate.base.protocol":B+"entrypoints/generate/base/protocol.py","vllm.entrypoints.openai.chat_completion.protocol":B+"entrypoints/openai/chat_completion/protocol.py","vllm.utils.import_utils":B+"utils/import_utils.py","vllm.renderers.chat_utils":B+"renderers/chat_utils.py","vllm.renderers.hf":B+"renderers/hf.py","vllm.renderers.params":B+"renderers/params.py"}
sys.meta_path.insert(0,F())
import vllm.renderers.chat_utils as cu
import vllm.renderers.hf as hf

import vllm.renderers.params as pa
import vllm.renderers as rr
rr.merge_kwargs=pa.merge_kwargs; rr.ChatParams=pa.ChatParams; rr.TokenizeParams=pa.TokenizeParams
import vllm.entrypoints.openai.chat_completion.protocol as cp

from transformers.utils.chat_template_utils import render_jinja_template
import transformers.utils.chat_template_utils as hu

DUMP = ("{% if show_roles is defined %}{% for m in messages %}[{{ m.role }}]{% endfor %}{% endif %}"
 "{% for m in messages %}\n{{ m|tojson }}{% endfor %}"
 "\nT={{ tools|tojson }} D={{ documents|tojson }} G={{ add_generation_prompt }}"
 " R={{ reasoning_effort is defined }} {{ reasoning_effort }} E={{ enable_thinking is defined }} {{ enable_thinking }} C={{ custom is defined }} {{ custom }} B={{ bos_token }}")
PARTS = "{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}" + DUMP
DEV = "{# knows 'developer' #}" + DUMP
PLAIN = "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content | trim }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
PARTSPLAIN = "{% for m in messages %}<|{{ m['role'] }}|>{% for p in m['content'] %}{{ p.text }}{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
TEMPLATES = {"dump": DUMP, "parts": PARTS, "developer": DEV, "plain": PLAIN, "parts_plain": PARTSPLAIN}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
SERVER = [{}, {"enable_thinking": False, "custom": {"a": 1, "b": [1.5, None]}}]

def tracker():
    t = MagicMock()
    def nomedia(*a, **k): raise RuntimeError("media")
    p = MagicMock()
    for n in ("parse_image","parse_image_pil","parse_image_embeds","parse_audio","parse_audio_embeds","parse_input_audio","parse_video","parse_video_embeds"):
        setattr(p, n, nomedia)
    p.parse_prompt_embeds = lambda *a: (_ for _ in ()).throw(RuntimeError("embeds"))
    p.model_config.enable_prompt_embeds = False
    p.mm_placeholder_storage.return_value = {}
    t.create_parser.return_value = p
    return t

def render(body, name, server, exclude):
    template = TEMPLATES[name]
    body = json.loads(body)
    req = cp.ChatCompletionRequest(**body)
    if req.chat_template is not None or (req.chat_template_kwargs or {}).get("chat_template") is not None:
        return "skip:request_template"
    if req.truncate_prompt_tokens is not None: return "skip:truncated"
    tools = None if req.tools is None or (req.tool_choice == "none" and exclude) else [t.model_dump() for t in req.tools]
    params = req.build_chat_params(template, "auto").with_defaults(pa.merge_kwargs(server, dict(tools=tools, tokenize=False)))
    fmt = hf._detect_content_format(template, default="string")
    conv = []
    for m in req.messages:
        conv.extend(cu._parse_chat_message_content(m, tracker(), fmt, False, None))
    cu._postprocess_messages(conv)
    kw = params.get_apply_chat_template_kwargs()
    t = kw.pop("chat_template", None); kw.pop("return_dict", None)
    if any(m["role"] == "developer" for m in conv) and not hf._detect_developer_role_support(template):
        conv = hf._convert_developer_to_system(conv); conv = hf._consolidate_system_messages(conv)
    tools2 = kw.pop("tools", None)
    if {"chat_template", "tokenize"} & (kw.keys() - {"tokenize"}) : raise ValueError
    kw.pop("tokenize", None)
    vars_ = hf._resolve_chat_template_kwargs(template) | {"documents","add_generation_prompt","continue_final_message"}
    kw = {k: v for k, v in kw.items() if k in vars_}
    if not conv: raise ValueError("empty")
    conv = hu._normalize_chat_messages(conv)
    if kw.get("continue_final_message") and kw.get("add_generation_prompt"): raise ValueError
    out, _ = render_jinja_template([conv], tools=tools2, chat_template=template, **{**SPECIAL, **kw})
    return out[0]

R = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 7)
def text():
    return R.choice(["hello", "", "  spaced  ", "line\nbreak\n", "naïve 天气 🚀", "x-anthropic-billing-header: cch=1\nrest", "x-anthropic-billing-header only", "quote \" ' \\ </s> <b>", "\x1fcontrol\x00", "cafe\u0301"])
def part():
    k = R.randrange(14)
    if k < 6: p = {"type": "text", "text": text()}
    elif k == 6: return text()
    elif k == 7: p = {"type": "refusal", "refusal": text()}
    elif k == 8: p = {"type": "thinking", "thinking": text(), "closed": True}
    elif k == 9: p = {"text": text(), "cache_control": {"type": "ephemeral"}, "type": "text", "x": 1}
    elif k == 10: p = {"type": "tool_reference", "name": "get_weather"}
    elif k == 11: p = {"type": "input_text", "text": text()}
    elif k == 12: p = R.choice([{"type":"image_url","image_url":{"url":"http://x"}},{"image_url":"http://x"},{"type":"input_audio","input_audio":{"data":"","format":"wav"}},{"type":"prompt_embeds","data":"x"},{"type":"text","text":"a","uuid":"u"},{"type":"video_url","video_url":{"url":"u"}},{"type":"nope"},{"text":"no type"},{"type":"text","text":None},{"type":"text"},5,{"type":"text","text":"t","image_url":None},{"type":"text","text":"t","name":"n"}]) 
    else: p = {"type": "text", "text": text(), "detail": [1, 2.50, 1e20, {"z": 1, "a": None}]}
    return p
def content(role):
    k = R.randrange(10)
    if k < 5: return text()
    if k < 9: return [part() for _ in range(R.randrange(0, 4))]
    return None
def call():
    c = {"id": "c%d" % R.randrange(9), "type": "function", "function": {"name": R.choice(["f","get_weather"]), "arguments": R.choice(['{"city": "Köln", "n": 1.0, "items": [1, 2e3]}', "", "{}", "[]", "not json", "null", '{"a": 1, "a": 2}', ' {"b" : true} ', '"{}"', "{\"big\": 12345678901234567890}"])}}
    if R.random() < .3: c = dict(reversed(list(c.items())))
    if R.random() < .1: c["extra"] = 1; c["function"]["more"] = {"k": None}
    if R.random() < .05: c.pop(R.choice(["id","type"]))
    if R.random() < .05: c["function"]["arguments"] = {"x": 1}
    return c
def message():
    role = R.choice(["system","user","user","assistant","assistant","tool","developer","custom"])
    m = {"role": role}
    if R.random() < .95: m["content"] = content(role)
    if role == "assistant":
        if R.random() < .4: m["tool_calls"] = R.choice([[call() for _ in range(R.randrange(0,3))], None])
        if R.random() < .3: m["reasoning"] = R.choice([text(), None])
        if R.random() < .3: m["reasoning_content"] = R.choice([text(), None, ""])
        if R.random() < .05: m["refusal"] = None
    if role == "tool" and R.random() < .9: m["tool_call_id"] = R.choice(["c1", "c2"])
    if R.random() < .15: m["name"] = R.choice(["bob", ""])
    if R.random() < .05: m["task"] = "t"
    if R.random() < .05: m["unknown"] = {"a": 1}
    if role == "developer" and R.random() < .4: m["tools"] = [{"type":"function","function":{"name":"d"}}]
    if R.random() < .2: m = dict(reversed(list(m.items())))
    return m
def tool():
    f = {"name": R.choice(["f","g"])}
    if R.random() < .7: f["parameters"] = {"type":"object","properties":{"x":{"type":"number","default":0.1,"minimum":-1e-7},"items":{"type":"array","items":{"type":"string","enum":["ä","<"]}}},"required":[]}
    if R.random() < .7: f["description"] = text()
    if R.random() < .2: f["strict"] = R.choice([True, False, None])
    if R.random() < .1: f["defer_loading"] = R.choice([True, None])
    if R.random() < .2: f["zz"] = 1
    t = {"function": f}
    if R.random() < .9: t["type"] = "function"
    if R.random() < .1: t["defer_loading"] = R.choice([True, False])
    if R.random() < .1: t["yy"] = 1
    return t
def body():
    b = {"model": "m", "messages": [message() for _ in range(R.randrange(0 if R.random()<.05 else 1, 5))]}
    if R.random() < .4: b["tools"] = R.choice([[tool() for _ in range(R.randrange(0 if R.random()<.1 else 1,3))], [tool()], None])
    if R.random() < .2 and b.get("tools"): b["tool_choice"] = R.choice(["none","auto","required",None])
    if R.random() < .3: b["chat_template_kwargs"] = R.choice([{}, None, {"enable_thinking": True}, {"enable_thinking": None, "custom": "auto"}, {"custom": [True, {"k": 1.0}]}, {"reasoning_effort": "low"}, {"add_generation_prompt": False}, {"bos_token": "<B>"}, {"documents": [{"title": "t"}]}, {"chat_template": "x"}, {"continue_final_message": True}])
    if R.random() < .2: b["reasoning_effort"] = R.choice(["none","low","high",None])
    if R.random() < .2: b["add_generation_prompt"] = R.choice([True, False])
    if R.random() < .25: b["continue_final_message"] = True; b["add_generation_prompt"] = False
    if R.random() < .1: b["documents"] = R.choice([[{"title":"a","text":"b"}], None, []])
    return b
out = []
stat = collections.Counter()
while len(out) < (int(sys.argv[4]) if len(sys.argv) > 4 else 700):
    b = json.dumps(body(), ensure_ascii=False)
    name = R.choice(list(TEMPLATES)); server = R.choice(SERVER); exclude = R.random() < .3
    try: r = render(b, name, server, exclude); kind = "skip" if r.startswith("skip:") else "text"
    except RuntimeError as e:
        if str(e) not in ("media","embeds"): raise
        r = "skip:multimodal" if str(e)=="media" else "skip:prompt_embeds"; kind=str(e)
    except Exception as e:
        kind = "refused"; r = None; why = (type(e).__name__ + ": " + str(e))[:150]
        if R.random() < .6: continue
    stat[kind] += 1
    out.append({"template": name, "server_kwargs": server, "hide_tools": exclude, "body": b, "expect": r})
print(stat)
with open(sys.argv[2],"w") as f:
    f.write(json.dumps({"templates": TEMPLATES, "special_tokens": SPECIAL}, ensure_ascii=False)+"\n")
    for v in out: f.write(json.dumps(v, ensure_ascii=False)+"\n")

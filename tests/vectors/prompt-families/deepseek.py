"""DeepSeek V3.2, V4 and V4.1 chats: vLLM's request models, chat parser and tokenizer wrappers.

    python deepseek.py FAMILY OUT.jsonl [SEED [COUNT]]       with vLLM installed
"""
import collections, json, random, sys
from types import SimpleNamespace as NS

import vllm.renderers.deepseek_v32 as r32
import vllm.renderers.deepseek_v4 as r4
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers import merge_kwargs
from vllm.tokenizers.deepseek_v4 import get_deepseek_v4_tokenizer
from vllm.tokenizers.deepseek_v32 import get_deepseek_v32_tokenizer
from vllm.tokenizers.deepseek_v41 import get_deepseek_v41_tokenizer

from bodies import Bodies


class Tokenizer:
    """Only what the wrappers touch: prompts stay text."""
    def get_added_vocab(self):
        return {}


FAMILIES = {
    "deepseek_v32": (r32.DeepseekV32Renderer, get_deepseek_v32_tokenizer),
    "deepseek_v4": (r4.DeepseekV4Renderer, get_deepseek_v4_tokenizer),
    "deepseek_v41": (r4.DeepseekV4Renderer, get_deepseek_v41_tokenizer),
}
KWARGS = [{}, {"thinking": True}, {"thinking": True}, {"enable_thinking": True}, {"thinking": False}, {"thinking": None},
          {"thinking": True, "drop_thinking": False}, {"drop_thinking": False}, {"reasoning_effort": "max"},
          {"reasoning_effort": 5}, {"reasoning_effort": 0}, {"reasoning_effort": "xhigh"}, {"thinking": "auto"},
          {"enable_thinking": False, "thinking": 1}, {"add_generation_prompt": False}, {"unknown": 1},
          {"drop_thinking": 0, "thinking": True}, {"reasoning_effort": True}, {"reasoning_effort": 5.0}]
SERVER = [{}, {}, {"thinking": True}, {"reasoning_effort": "max", "enable_thinking": False}]


def render(family, body, server, exclude):
    renderer, wrap = FAMILIES[family]
    tokenizer = wrap(Tokenizer())
    request = ChatCompletionRequest(**json.loads(body))
    if not request.messages:
        raise ValueError("empty")
    hidden = request.tools is None or (request.tool_choice == "none" and exclude)
    tools = None if hidden else [tool.model_dump() for tool in request.tools]
    params = request.build_chat_params(None, "auto").with_defaults(merge_kwargs(server, dict(tools=tools, tokenize=False)))
    config = NS(multimodal_config=None, enable_prompt_embeds=False, is_multimodal_model=False,
                hf_config=NS(model_type="deepseek"), allowed_local_media_path="", allowed_media_domains=None)
    self = NS(model_config=config, get_tokenizer=lambda: tokenizer)
    self._apply_chat_template = lambda *a, **k: renderer._apply_chat_template(self, *a, **k)
    prompt = renderer.render_messages(self, request.messages, params)[1]["prompt"]
    prompt.encode()
    return prompt


def main():
    family, out = sys.argv[1:3]
    seed, count = int(sys.argv[3]) if len(sys.argv) > 3 else 7, int(sys.argv[4]) if len(sys.argv) > 4 else 400
    bodies = Bodies(seed, ["system", "user", "user", "assistant", "tool", "developer", "latest_reminder", "custom"])
    random_ = random.Random(seed + 1)
    kinds, lines = collections.Counter(), []
    while len(lines) < count:
        body = json.dumps(bodies.chat(KWARGS), ensure_ascii=False)
        server, exclude = random_.choice(SERVER), random_.random() < .3
        try:
            expect = render(family, body, server, exclude)
            kinds["text"] += 1
        except Exception as error:
            kinds[type(error).__name__ + " " + str(error)[:40]] += 1
            expect = None
            if random_.random() < .7:
                continue
        profile = {"default_chat_template_kwargs": server, "exclude_tools_when_tool_choice_none": exclude}
        lines.append({"profile": profile, "body": body, "expect": expect})
    print(*kinds.most_common(12), sep="\n")
    with open(out, "w") as file:
        file.write(json.dumps({"profile": {"renderer": family}}) + "\n")
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


main()

"""The OpenAI client -> LiteLLM's proxy with the shipped configuration -> Envoy."""

import json
import os
import secrets
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import anthropic
import openai
import yaml

import prompts
from base import CONVERSATIONS, TURNS, Case, Told, stack
from stack import ROOT, free_ports, get
from test_openai import chat_turns, client, streamed_turns, tool_turns

# LiteLLM refuses to start without a key of some strength.
KEY = "sk-" + secrets.token_hex(32)
URL = None
RECORDER = None


class Recorder(BaseHTTPRequestHandler):
    """Keeps the bodies of requests, and answers as an engine would."""

    bodies = []

    def do_POST(self):
        self.bodies.append(self.rfile.read(int(self.headers["content-length"])).decode())
        message = {"role": "assistant", "content": "Yes."}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "sim",
                  "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                  "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def setUpModule():
    global URL, RECORDER
    running = stack()
    RECORDER = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=RECORDER.serve_forever, daemon=True).start()
    unittest.addModuleCleanup(RECORDER.shutdown)
    config = yaml.safe_load((ROOT / "envoy/litellm/config.yaml").read_text())
    entry = config["model_list"][0]
    entry["litellm_params"]["api_base"] = running.url + "/v1"
    recorded = json.loads(json.dumps(entry))
    recorded["model_name"] = "recorded"
    recorded["litellm_params"]["api_base"] = f"http://127.0.0.1:{RECORDER.server_port}/v1"
    config["model_list"].append(recorded)
    path = running.folder / "litellm.yaml"
    path.write_text(json.dumps(config))
    (port,) = free_ports(1)
    URL = f"http://127.0.0.1:{port}"
    # Its table of prices is in the package too, and this test needs nothing from elsewhere.
    running.launch("litellm", os.environ["LITELLM"], "--config", path, "--host", "127.0.0.1", "--port", port,
                   "--telemetry", "False", LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MASTER_KEY=KEY)
    running.wait("LiteLLM", lambda: bool(get(URL + "/health/liveliness")), 180)


class LiteLLM(Case):
    def test_a_chat_stays_where_its_prefix_is(self):
        self.check([chat_turns(client(URL, KEY), f"litellm {n}") for n in range(CONVERSATIONS)])

    def test_a_streamed_chat_does_too(self):
        self.check([streamed_turns(client(URL, KEY), f"litellm streamed {n}") for n in range(CONVERSATIONS)])

    def test_tools(self):
        self.check([tool_turns(client(URL, KEY), f"litellm tools {n}", stream=n % 2 == 1) for n in range(CONVERSATIONS)])

    def test_what_came_directly_is_found_by_what_comes_through_it(self):
        direct = chat_turns(client(), "both ways")
        through = chat_turns(client(URL, KEY), "both ways")
        self.assertEqual(len({told.engine for told, _ in direct + through}), 1)
        self.assertGreater(through[0][1], 200)

    def test_anthropics_client_through_it(self):
        """LiteLLM makes chats of its messages."""
        conversations = []
        with anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0) as through:
            for n in range(CONVERSATIONS):
                messages, turns = [], []
                for turn in range(TURNS):
                    messages.append({"role": "user", "content": prompts.text(f"{n} {turn}", 200)})
                    with Told() as told:
                        message = through.messages.create(model="sim", max_tokens=60, messages=messages)
                    self.assertTrue(message.content[0].text)
                    # It leaves a zero out.
                    turns.append((told, message.usage.cache_read_input_tokens or 0))
                    messages.append({"role": "assistant", "content": message.content[0].text})
                conversations.append(turns)
        self.check(conversations)

    def test_what_it_changes_in_a_body(self):
        messages = [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": "Weather?", "name": "ann"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"place": "Oslo",  "days": 2}'}}]},
            {"role": "tool", "tool_call_id": "1", "content": "4"},
        ]
        parameters = {**prompts.WEATHER["parameters"], "additionalProperties": False}
        tool = {"type": "function", "function": {**prompts.WEATHER, "parameters": parameters, "strict": True}}
        extra = {"cache_salt": "tenant-a", "chat_template_kwargs": {"enable_thinking": False}, "top_k": 5}
        Recorder.bodies.clear()
        client(URL, KEY).chat.completions.create(
            model="recorded", messages=messages, tools=[tool], temperature=0.5, extra_body=extra
        )
        (text,) = Recorder.bodies
        body = json.loads(text)
        # What the prompt is made of arrives, in its order (a null content is the same as none)...
        del messages[2]["content"]
        self.assertEqual(json.dumps(body["messages"]), json.dumps(messages))
        for field, value in {"temperature": 0.5, **extra}.items():
            self.assertEqual(body[field], value)
        # ... but for these two fields of tools, which vLLM shows to the model: the same tools sent directly are
        # another prompt.
        self.assertEqual(body["tools"], [{"type": "function", "function": prompts.WEATHER}])
        # The engine's name of the model, not LiteLLM's.
        self.assertEqual(body["model"], "sim")

    def test_it_does_not_try_again(self):
        """Envoy does: each engine is asked once, and the client told. The next request is not held back."""
        running = stack()
        before = len(running.access_log())
        # As many as LiteLLM and Envoy could ask for together, were neither held back.
        running.refuse(100)
        try:
            with self.assertRaises(openai.APIStatusError) as refused:
                chat_turns(client(URL, KEY), "busy")
        finally:
            running.refuse(0)
        self.assertEqual(refused.exception.status_code, 503)
        chat_turns(client(URL, KEY), "busy")
        entries = running.wait_for_entries(before + 1 + TURNS)[before:]
        self.assertEqual([entry["status"] for entry in entries], [503] + [200] * TURNS)
        self.assertEqual(int(entries[0]["attempts"]), 3)

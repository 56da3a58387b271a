"""The Anthropic client, with Envoy as its base URL."""

import functools

import anthropic

import prompts
from base import CONVERSATIONS, TURNS, Case, Told, stack


@functools.cache
def client():
    return anthropic.Anthropic(base_url=stack().url, api_key="none", max_retries=0)


def ask(stream, **request):
    """The message, and what is told of the request."""
    request = {"model": "sim", "max_tokens": 600, **request}
    with Told() as told:
        if stream:
            with client().messages.stream(**request) as events:
                pieces = sum(event.type == "content_block_delta" for event in events)
                message = events.get_final_message()
            assert pieces > 5 or message.stop_reason == "tool_use", f"not streamed: {pieces} pieces"
        else:
            message = client().messages.create(**request)
    return message, told


class Messages(Case):
    def turns(self, name, stream):
        messages, turns = [], []
        for turn in range(TURNS):
            messages.append({"role": "user", "content": f"Question {turn}? " + prompts.text(turn, 20)})
            message, told = ask(stream, system=prompts.system(name), messages=messages, max_tokens=60)
            assert message.content[0].text, message
            turns.append((told, message.usage.cache_read_input_tokens))
            messages.append({"role": "assistant", "content": message.content[0].text})
        return turns

    def test_messages_stay_where_their_prefix_is(self):
        self.check([self.turns(f"messages {n}", stream=False) for n in range(CONVERSATIONS)])

    def test_streamed_messages_do_too(self):
        self.check([self.turns(f"message stream {n}", stream=True) for n in range(CONVERSATIONS)])

    def test_tools(self):
        weather = prompts.WEATHER
        tool = {"name": weather["name"], "description": weather["description"], "input_schema": weather["parameters"]}
        conversations = []
        for n in range(CONVERSATIONS):
            messages = [{"role": "user", "content": "The weather in Oslo?"}]
            request = {"system": prompts.system(f"message tools {n}"), "tools": [tool]}
            first, told = ask(n % 2 == 1, messages=messages, **request)
            self.assertEqual(first.stop_reason, "tool_use")
            use = first.content[0]
            self.assertEqual((use.type, use.name), ("tool_use", "get_weather"))
            self.assertIn("place", use.input)
            turns = [(told, first.usage.cache_read_input_tokens)]
            messages.append({"role": "assistant", "content": [use.model_dump(include={"type", "id", "name", "input"})]})
            result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "4 degrees"}]}
            messages.append({"role": "user", "content": [result]})
            second, told = ask(False, messages=messages, **request)
            self.assertEqual(second.stop_reason, "end_turn")
            turns.append((told, second.usage.cache_read_input_tokens))
            conversations.append(turns)
        self.check(conversations)

    def test_errors_are_told_as_errors(self):
        with self.assertRaises(anthropic.NotFoundError):
            ask(False, model="no-such-model", messages=[{"role": "user", "content": "Hello?"}])

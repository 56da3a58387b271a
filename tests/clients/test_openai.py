"""The OpenAI client, with Envoy as its base URL."""

import functools
import json

import openai

import prompts
from base import CONVERSATIONS, TURNS, Case, Told, stack


@functools.cache
def client(url=None, key="none"):
    return openai.OpenAI(base_url=(url or stack().url) + "/v1", api_key=key, max_retries=0)


def chat_turns(client, name, **more):
    """A conversation: what is told of each turn, and its cached tokens."""
    messages = [{"role": "system", "content": prompts.system(name)}]
    turns = []
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"Question {turn}? " + prompts.text(turn, 20)})
        with Told() as told:
            answer = client.chat.completions.create(model="sim", messages=messages, max_tokens=60, **more)
        message = answer.choices[0].message
        assert message.content, answer
        turns.append((told, answer.usage.prompt_tokens_details.cached_tokens))
        messages.append({"role": "assistant", "content": message.content})
    return turns


def streamed_turns(client, name):
    messages = [{"role": "system", "content": prompts.system(name)}]
    turns = []
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"Question {turn}? " + prompts.text(turn, 20)})
        text, usage, pieces = "", None, 0
        with Told() as told:
            stream = client.chat.completions.create(
                model="sim", messages=messages, max_tokens=60, stream=True, stream_options={"include_usage": True}
            )
            for chunk in stream:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    pieces += bool(choice.delta.content)
        assert pieces > 5, f"not streamed: {pieces} pieces"
        turns.append((told, usage.prompt_tokens_details.cached_tokens))
        messages.append({"role": "assistant", "content": text})
    return turns


def tool_turns(client, name, stream=False):
    """A user's turn is answered by a call, the tool's result in words."""
    messages = [{"role": "system", "content": prompts.system(name)}, {"role": "user", "content": "The weather in Oslo?"}]
    tools = [{"type": "function", "function": prompts.WEATHER}]
    ask = {"model": "sim", "messages": messages, "tools": tools, "max_tokens": 600}
    with Told() as told:
        if stream:
            with client.chat.completions.stream(**ask, stream_options={"include_usage": True}) as events:
                answer = events.get_final_completion()
        else:
            answer = client.chat.completions.create(**ask)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls", choice
    call = choice.message.tool_calls[0]
    assert call.function.name == "get_weather" and "place" in json.loads(call.function.arguments), call
    turns = [(told, answer.usage.prompt_tokens_details.cached_tokens)]
    messages.append(choice.message.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": '{"celsius": 4}'})
    with Told() as told:
        answer = client.chat.completions.create(**ask)
    assert answer.choices[0].finish_reason == "stop", answer
    turns.append((told, answer.usage.prompt_tokens_details.cached_tokens))
    return turns


class Chat(Case):
    def test_a_chat_stays_where_its_prefix_is(self):
        self.check([chat_turns(client(), f"direct {n}") for n in range(CONVERSATIONS)])

    def test_a_streamed_chat_does_too(self):
        self.check([streamed_turns(client(), f"streamed {n}") for n in range(CONVERSATIONS)])

    def test_tools(self):
        self.check([tool_turns(client(), f"tools {n}", stream=n % 2 == 1) for n in range(CONVERSATIONS)])

    def test_another_client_finds_what_this_one_left(self):
        first = chat_turns(client(), "shared")
        with openai.OpenAI(base_url=stack().url + "/v1", api_key="none") as other:
            again = chat_turns(other, "shared")
        self.assertEqual(len({told.engine for told, _ in first + again}), 1)
        self.assertGreater(again[0][1], 200)


class Responses(Case):
    def turns(self, name, stream, stored):
        """The history is sent again each time, or kept by the engine."""
        history, previous, turns = [], None, []
        for turn in range(TURNS):
            question = {"role": "user", "content": f"Question {turn}? " + prompts.text(turn, 20)}
            history.append(question)
            ask = {"model": "sim", "instructions": prompts.system(name), "max_output_tokens": 60}
            ask["input"] = [question] if stored else history
            if stored and previous:
                ask["previous_response_id"] = previous.id
            with Told() as told:
                if stream:
                    with client().responses.stream(**ask) as events:
                        kinds = [event.type for event in events]
                        previous = events.get_final_response()
                    assert kinds.count("response.output_text.delta") > 5, kinds
                    assert kinds[0] == "response.created" and kinds[-1] == "response.completed", kinds
                else:
                    previous = client().responses.create(**ask)
            assert previous.output_text, previous
            turns.append((told, previous.usage.input_tokens_details.cached_tokens))
            history += [item.model_dump(exclude_none=True) for item in previous.output]
        return turns

    def test_with_the_history_in_each_request(self):
        self.check([self.turns(f"responses {n}", n % 2 == 1, stored=False) for n in range(CONVERSATIONS)])

    def test_with_the_history_at_the_engine(self):
        self.check([self.turns(f"stored {n}", n % 2 == 1, stored=True) for n in range(CONVERSATIONS)])

    def test_tools(self):
        conversations = []
        for n in range(CONVERSATIONS):
            tool = {"type": "function", "strict": True, **prompts.WEATHER}
            items = [{"role": "user", "content": "The weather in Oslo?"}]
            ask = {"model": "sim", "instructions": prompts.system(f"responses tools {n}"), "tools": [tool]}
            with Told() as told:
                if n % 2 == 1:
                    with client().responses.stream(input=items, **ask) as events:
                        first = events.get_final_response()
                else:
                    first = client().responses.create(input=items, **ask)
            call = first.output[0]
            self.assertEqual((call.type, call.name), ("function_call", "get_weather"))
            self.assertIn("place", json.loads(call.arguments))
            turns = [(told, first.usage.input_tokens_details.cached_tokens)]
            items.append(call.model_dump(exclude_none=True, exclude={"parsed_arguments"}))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": "4"})
            with Told() as told:
                second = client().responses.create(input=items, **ask)
            self.assertTrue(second.output_text)
            turns.append((told, second.usage.input_tokens_details.cached_tokens))
            conversations.append(turns)
        self.check(conversations)


class Embeddings(Case):
    def test_texts_that_begin_alike_are_embedded_by_one_engine(self):
        conversations = []
        for n in range(CONVERSATIONS):
            text, turns, vectors = prompts.system(f"embedded {n}"), [], []
            for turn in range(TURNS):
                text += " " + prompts.text(turn, 30)
                with Told() as told:
                    answer = client().embeddings.with_raw_response.create(model="sim", input=text)
                vectors.append(answer.parse().data[0].embedding)
                turns.append((told, int(answer.headers["x-engine-cached-tokens"])))
            self.assertEqual({len(vector) for vector in vectors}, {16})
            conversations.append(turns)
        self.check(conversations)

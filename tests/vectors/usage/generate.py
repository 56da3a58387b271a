"""Responses as vLLM's own classes write them, with the figures that they hold.

    python generate.py > vllm-0.32.jsonl        (vLLM 0.32 must be importable)

Whole bodies are vLLM's response classes in a JSONResponse, as its routers do it; streams are the chunks
that its serving classes yield, those of /v1/messages made by its own converter. The texts are
what a hostile or unlucky model would write: the very keys that are looked for.
"""

import asyncio
import json

from fastapi.responses import JSONResponse
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
from vllm.entrypoints.openai.chat_completion import protocol as chat
from vllm.entrypoints.openai.completion import protocol as completion
from vllm.entrypoints.openai.responses import protocol as responses
from vllm.entrypoints.serve.engine.protocol import PromptTokenUsageInfo, UsageInfo

EVIL = '{"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":2},"cache_read_input_tokens":3}}\n\ndata: {"usage": "\\"'
NAME = "m"


def whole(model, **how):
    return JSONResponse(content=model.model_dump(**how)).body.decode()


def usage(cached, created=None, details=True):
    info = UsageInfo(prompt_tokens=1000, completion_tokens=7, total_tokens=1007)
    if details:
        info.prompt_tokens_details = PromptTokenUsageInfo(cached_tokens=cached, created_cache_tokens=created)
    return info


def emit(name, framing, body, cached, prompt=1000):
    print(json.dumps({"name": name, "framing": framing, "body": body, "prompt_tokens": prompt, "cached": cached}))


def chat_body(info, **extra):
    message = chat.ChatMessage(role="assistant", content=EVIL)
    choice = chat.ChatCompletionResponseChoice(index=0, message=message, finish_reason="stop")
    return chat.ChatCompletionResponse(model=NAME, choices=[choice], usage=info, **extra)


def chat_stream(info, continuous=False):
    def chunk(delta, finish=None):
        choice = chat.ChatCompletionResponseStreamChoice(index=0, delta=delta, finish_reason=finish)
        it = chat.ChatCompletionStreamResponse(id="c", object="chat.completion.chunk", created=1, choices=[choice], model=NAME)
        if continuous:
            it.usage = UsageInfo(prompt_tokens=1000, completion_tokens=1, total_tokens=1001)
        return f"data: {it.model_dump_json(exclude_unset=True)}\n\n"

    yield chunk(chat.DeltaMessage(role="assistant", content=""))
    for at in range(0, len(EVIL), 11):
        yield chunk(chat.DeltaMessage(content=EVIL[at:at + 11]))
    yield chunk(chat.DeltaMessage(content=""), "stop")
    if info is not None:
        last = chat.ChatCompletionStreamResponse(id="c", object="chat.completion.chunk", created=1, choices=[], model=NAME, usage=info)
        yield f"data: {last.model_dump_json(exclude_unset=True, exclude_none=True)}\n\n"
    yield "data: [DONE]\n\n"


def completion_body(info):
    choice = completion.CompletionResponseChoice(index=0, text=EVIL, finish_reason="stop")
    return completion.CompletionResponse(model=NAME, choices=[choice], usage=info,
                                         kv_transfer_params={"remote": list(range(500))})


def completion_stream(info):
    choice = completion.CompletionResponseStreamChoice(index=0, text=EVIL)
    it = completion.CompletionStreamResponse(id="c", created=1, model=NAME, choices=[choice])
    yield f"data: {it.model_dump_json(exclude_unset=True)}\n\n"
    if info is not None:
        last = completion.CompletionStreamResponse(id="c", created=1, model=NAME, choices=[], usage=info)
        yield f"data: {last.model_dump_json(exclude_unset=True, exclude_none=True)}\n\n"
    yield "data: [DONE]\n\n"


def responses_object(with_usage=True):
    text = ResponseOutputText(type="output_text", text=EVIL, annotations=[])
    message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
    details = responses.InputTokensDetails(cached_tokens=640, cache_write_tokens=360, cached_tokens_per_turn=[640])
    info = responses.ResponseUsage(input_tokens=1000, input_tokens_details=details, output_tokens=7,
                                   output_tokens_details=responses.OutputTokensDetails(), total_tokens=1007)
    return responses.ResponsesResponse(
        model=NAME, output=[message], parallel_tool_calls=True, temperature=1.0, tool_choice="auto",
        tools=[{"type": "function", "name": "usage", "strict": None,
                "parameters": {"usage": {"input_tokens_details": {"cached_tokens": 9}}}}],
        top_p=1.0, background=False, max_output_tokens=9, service_tier="auto", status="completed",
        truncation="disabled", metadata={"usage": "cached_tokens"}, instructions=EVIL,
        usage=info if with_usage else None)


def responses_stream():
    events = [
        responses.ResponseCreatedEvent(type="response.created", sequence_number=0, response=responses_object(False)),
        responses.ResponseCompletedEvent(type="response.completed", sequence_number=1, response=responses_object()),
    ]
    for event in events:
        yield f"event: {event.type}\ndata: {event.model_dump_json(indent=None)}\n\n"


async def drain(generator):
    return "".join([event async for event in generator])


async def as_async(items):
    for item in items:
        yield item


def messages():
    serving = object.__new__(AnthropicServingMessages)
    body = lambda info: whole(serving.messages_full_converter(chat_body(info)), exclude_none=True)
    stream = lambda info: asyncio.run(drain(serving.message_stream_converter(as_async(chat_stream(info, True)))))
    emit("messages", "json", body(usage(640, 360)), 640)
    emit("messages without the flag", "json", body(usage(0, details=False)), "no_figure")
    emit("messages stream", "events", stream(usage(640, 360)), 640)
    emit("messages stream, nothing cached", "events", stream(usage(0)), 0)
    emit("messages stream without the flag", "events", stream(usage(0, details=False)), "no_figure")


emit("chat", "json", whole(chat_body(usage(640, 352))), 640)
emit("chat, much behind usage", "json",
     whole(chat_body(usage(640), prompt_token_ids=list(range(3000)), prompt_text=EVIL * 20,
               prompt_logprobs=[None], kv_transfer_params={"usage": {"prompt_tokens_details": {"cached_tokens": 5}}})), 640)
emit("chat, nothing cached", "json", whole(chat_body(usage(0))), 0)
emit("chat without the flag", "json", whole(chat_body(usage(0, details=False))), "no_figure")
emit("chat, unknown to the engine", "json", whole(chat_body(usage(None))), "null")
emit("chat stream", "events", "".join(chat_stream(usage(640, 352))), 640)
emit("chat stream, usage in every chunk", "events", "".join(chat_stream(usage(640), True)), 640)
emit("chat stream without the flag", "events", "".join(chat_stream(usage(0, details=False))), "no_figure")
emit("chat stream without usage", "events", "".join(chat_stream(None)), "no_usage", None)
emit("completion", "json", whole(completion_body(usage(640))), 640)
emit("completion stream", "events", "".join(completion_stream(usage(640))), 640)
emit("completion stream without usage", "events", "".join(completion_stream(None)), "no_usage", None)
emit("responses", "json", whole(responses_object()), 640)
emit("responses stream", "events", "".join(responses_stream()), 640)
messages()

"""Cases that the published Python clients of OpenAI and Ollama pass against a node.

Usage: clients.py BASE MODEL, with BASE like http://127.0.0.1:8080. One line for each case.
"""
import json
import sys

import ollama
import openai
import pydantic

base, model = sys.argv[1], sys.argv[2]
api = openai.OpenAI(base_url=base + "/v1", api_key="unused", max_retries=0)
oll = ollama.Client(host=base)
hello = [{"role": "user", "content": "the"}]
greedy = {"model": model, "input": hello, "max_output_tokens": 8, "temperature": 0}
tool = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["the", "fox"]}}, "required": ["city"], "additionalProperties": False}}}
function = {"type": "function", "strict": True, **tool["function"]}  # in the form of responses
failed = []


class Answer(pydantic.BaseModel):
    the: bool


def case(f):
    try:
        f()
        print("ok  ", f.__name__)
    except Exception as e:  # a case may fail in any way
        failed.append(f.__name__)
        print("FAIL", f.__name__, type(e).__name__, str(e)[:300])


@case
def openai_models():
    assert model in [m.id for m in api.models.list()]
    assert api.models.retrieve(model).id == model


@case
def openai_chat():
    r = api.chat.completions.create(model=model, messages=hello, max_tokens=8, temperature=0)
    assert r.choices[0].message.role == "assistant" and r.usage.completion_tokens == 8
    assert r.choices[0].finish_reason == "length"


@case
def openai_chat_stream():
    text, usage = "", None
    for c in api.chat.completions.create(model=model, messages=hello, max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}):
        if c.choices:
            text += c.choices[0].delta.content or ""
        usage = c.usage or usage
    whole = api.chat.completions.create(model=model, messages=hello, max_tokens=8, temperature=0)
    assert text == whole.choices[0].message.content and usage.completion_tokens == 8


@case
def openai_seed():
    def answer(seed):
        return api.completions.create(model=model, prompt="the", max_tokens=20, temperature=1, seed=seed).choices[0].text
    assert answer(5) == answer(5) and len({answer(s) for s in range(4)}) > 1


@case
def openai_n_and_logprobs():
    r = api.chat.completions.create(model=model, messages=hello, max_tokens=4, n=2, logprobs=True, top_logprobs=2)
    assert len(r.choices) == 2 and len(r.choices[1].logprobs.content) <= 4
    assert len(r.choices[0].logprobs.content[0].top_logprobs) == 2


@case
def openai_stop():
    whole = api.completions.create(model=model, prompt="the", max_tokens=50, temperature=0).choices[0].text
    r = api.completions.create(model=model, prompt="the", max_tokens=50, temperature=0, stop=[whole[4]])
    assert r.choices[0].text == whole.split(whole[4])[0] and r.choices[0].finish_reason == "stop"


@case
def openai_json_schema():
    schema = {"type": "object", "properties": {"the": {"type": "boolean"}}, "required": ["the"], "additionalProperties": False}
    r = api.chat.completions.create(model=model, messages=hello, max_tokens=100,
                                    response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}})
    assert isinstance(json.loads(r.choices[0].message.content)["the"], bool)


@case
def openai_tools():
    r = api.chat.completions.create(model=model, messages=hello, max_tokens=200, tools=[tool], tool_choice="required")
    call = r.choices[0].message.tool_calls[0]
    assert r.choices[0].finish_reason == "tool_calls" and call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in ("the", "fox")


@case
def openai_tools_streamed():
    calls = []
    for c in api.chat.completions.create(model=model, messages=hello, max_tokens=200, tools=[tool], tool_choice="required", stream=True):
        calls += c.choices[0].delta.tool_calls or []
    assert calls[0].function.name == "weather" and calls[0].index == 0


@case
def openai_embeddings():
    r = api.embeddings.create(model=model, input=["the dog", "fox"])
    assert len(r.data) == 2 and abs(sum(x * x for x in r.data[0].embedding) - 1) < 1e-3


@case
def openai_response():
    r = api.responses.create(**greedy, instructions="fox", store=True, metadata={"a": "b"})
    assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens" and r.error is None
    assert r.usage.output_tokens == 8 and r.usage.total_tokens == 8 + r.usage.input_tokens
    assert r.output_text and r.store is False and r.metadata == {"a": "b"}
    api.responses.create(**{**greedy, "input": [*hello, *r.output, *hello]})


@case
def openai_response_stream():
    events = list(api.responses.create(**greedy, stream=True))
    with api.responses.stream(**greedy) as stream:
        texts = [e.snapshot for e in stream if e.type == "response.output_text.delta"]
    whole = api.responses.create(**greedy)
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == texts[-1] == whole.output_text


@case
def openai_response_logprobs():
    r = api.responses.create(**greedy, include=["message.output_text.logprobs"], top_logprobs=2)
    probs = r.output[0].content[0].logprobs
    assert len(probs) == 8 and len(probs[0].top_logprobs) == 2 and probs[0].logprob <= 0


@case
def openai_response_parsed():
    r = api.responses.parse(model=model, input="the", max_output_tokens=100, text_format=Answer)
    assert isinstance(r.output_parsed.the, bool) and r.status == "completed"
    with api.responses.stream(model=model, input="the", max_output_tokens=100, text_format=Answer) as stream:
        assert isinstance(stream.get_final_response().output_parsed.the, bool)


@case
def openai_response_tools():
    r = api.responses.create(model=model, input=hello, tools=[function], tool_choice="required")
    call = r.output[0]
    assert call.type == "function_call" and json.loads(call.arguments)["city"] in ("the", "fox")
    with api.responses.stream(model=model, input=hello, tools=[function], tool_choice={"type": "function", "name": "weather"}) as stream:
        assert stream.get_final_response().output[0].parsed_arguments["city"] in ("the", "fox")
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "fox"}
    assert api.responses.create(**{**greedy, "input": [*hello, *r.output, output]}).output_text


@case
def openai_response_errors():
    for members, kind in (({"model": "no"}, openai.NotFoundError), ({"previous_response_id": "resp_1"}, openai.BadRequestError),
                          ({"tools": [{"type": "web_search"}]}, openai.BadRequestError), ({"input": "the " * 2000}, openai.BadRequestError),
                          ({"background": True}, openai.BadRequestError)):
        try:
            api.responses.create(**{**greedy, **members})
        except kind as e:
            assert e.param or kind is openai.NotFoundError, e
            assert (e.code == "context_length_exceeded") == ("input" in members), e
            continue
        raise AssertionError(members)
    try:
        api.responses.retrieve("resp_1")
    except openai.NotFoundError:
        return
    raise AssertionError("a stored response")


@case
def openai_errors():
    for f, kind in ((lambda: api.chat.completions.create(model="no", messages=hello), openai.NotFoundError),
                    (lambda: api.chat.completions.create(model=model, messages=[]), openai.BadRequestError),
                    (lambda: api.completions.create(model=model, prompt="the " * 2000), openai.BadRequestError)):
        try:
            f()
        except kind:
            continue
        raise AssertionError(kind)


@case
def ollama_lists():
    assert model + ":latest" in [m.model for m in oll.list().models]
    assert oll.show(model).details.format == "gguf"
    oll.ps()


@case
def ollama_generate():
    r = oll.generate(model, "the", raw=True, options={"temperature": 0, "num_predict": 6})
    assert r.done and r.eval_count == 6 and r.response


@case
def ollama_context():
    first = oll.generate(model, "the", options={"temperature": 0, "num_predict": 6})
    parts = list(oll.generate(model, "the", context=first.context, stream=True, options={"temperature": 0, "num_predict": 6}))
    assert parts[-1].context[:len(first.context)] == list(first.context)
    assert parts[-1].prompt_eval_count >= len(first.context) and len(parts[-1].context) > len(first.context)


@case
def ollama_chat_stream():
    parts = list(oll.chat(model, hello, stream=True, options={"temperature": 0, "num_predict": 6}))
    assert parts[-1].done and "".join(p.message.content for p in parts)


@case
def ollama_format():
    r = oll.chat(model, hello, format={"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}, options={"num_predict": 100})
    assert isinstance(json.loads(r.message.content)["a"], bool)


@case
def ollama_embed():
    assert len(oll.embed(model, ["the", "dog"]).embeddings) == 2


@case
def ollama_errors():
    try:
        oll.generate("no", "x")
    except ollama.ResponseError as e:
        assert e.status_code == 404 and "not found" in e.error
    else:
        raise AssertionError("no error")


sys.exit(1 if failed else 0)

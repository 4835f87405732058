// Cases that the published JavaScript clients of OpenAI and Ollama pass against a node.
//
// Usage: NODE_PATH=FOLDER/node_modules node clients.cjs BASE MODEL, with BASE like
// http://127.0.0.1:8080. One line for each case.
"use strict";
const assert = require("node:assert/strict");
const OpenAI = require("openai");
const { Ollama } = require("ollama");

const [base, model] = process.argv.slice(2);
const api = new OpenAI.default({ baseURL: base + "/v1", apiKey: process.env.OUTBOARD_KEY || "unused", maxRetries: 0 });
const oll = new Ollama({ host: base });
const hello = [{ role: "user", content: "the" }];
const greedy = { model, max_tokens: 8, temperature: 0 };
const brief = { model, input: hello, max_output_tokens: 8, temperature: 0 };
const tool = {
  type: "function",
  function: {
    name: "weather",
    parameters: { type: "object", properties: { city: { enum: ["the", "fox"] } }, required: ["city"], additionalProperties: false },
  },
};
const schema = { type: "object", properties: { the: { type: "boolean" } }, required: ["the"], additionalProperties: false };

const cases = {
  async openai_models() {
    const ids = [];
    for await (const m of api.models.list()) ids.push(m.id);
    assert(ids.includes(model));
    assert.equal((await api.models.retrieve(model)).id, model);
  },
  async openai_chat() {
    const r = await api.chat.completions.create({ ...greedy, messages: hello });
    assert.equal(r.choices[0].message.role, "assistant");
    assert.equal(r.choices[0].finish_reason, "length");
    assert.equal(r.usage.completion_tokens, 8);
  },
  async openai_chat_stream_ends_with_usage() {
    let text = "", usage, last;
    for await (const c of await api.chat.completions.create({ ...greedy, messages: hello, stream: true, stream_options: { include_usage: true } })) {
      text += c.choices[0]?.delta.content ?? "";
      usage = c.usage ?? usage;
      last = c;
    }
    const whole = await api.chat.completions.create({ ...greedy, messages: hello });
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(usage.completion_tokens, 8);
    assert.equal(last.choices.length, 0);
  },
  async openai_stream_helper() {
    const stream = api.chat.completions.stream({ ...greedy, messages: hello });
    const whole = await stream.finalChatCompletion();
    assert.equal(whole.choices[0].finish_reason, "length");
  },
  async openai_abort() {
    const stream = await api.completions.create({ model, prompt: "the", max_tokens: 500, stream: true, logit_bias: { 2: -100 } });
    for await (const _ of stream) {
      stream.controller.abort();
      break;
    }
    await api.completions.create({ ...greedy, prompt: "the" });
  },
  async openai_seed() {
    const answer = async (seed) => (await api.completions.create({ model, prompt: "the", max_tokens: 20, temperature: 1, seed })).choices[0].text;
    assert.equal(await answer(5), await answer(5));
  },
  async openai_logprobs() {
    const r = await api.chat.completions.create({ ...greedy, messages: hello, logprobs: true, top_logprobs: 2 });
    assert.equal(r.choices[0].logprobs.content[0].top_logprobs.length, 2);
    assert(r.choices[0].logprobs.content[0].logprob <= 0);
  },
  async openai_stop() {
    const whole = (await api.completions.create({ ...greedy, prompt: "the", max_tokens: 50 })).choices[0].text;
    const r = await api.completions.create({ ...greedy, prompt: "the", max_tokens: 50, stop: [whole[4]] });
    assert.equal(r.choices[0].text, whole.split(whole[4])[0]);
    assert.equal(r.choices[0].finish_reason, "stop");
  },
  async openai_json_schema() {
    const r = await api.chat.completions.create({
      model, messages: hello, max_tokens: 100, response_format: { type: "json_schema", json_schema: { name: "x", schema, strict: true } },
    });
    assert.equal(typeof JSON.parse(r.choices[0].message.content).the, "boolean");
  },
  async openai_tools() {
    const r = await api.chat.completions.create({ model, messages: hello, max_tokens: 200, tools: [tool], tool_choice: "required" });
    const call = r.choices[0].message.tool_calls[0];
    assert.equal(r.choices[0].finish_reason, "tool_calls");
    assert(["the", "fox"].includes(JSON.parse(call.function.arguments).city));
  },
  async openai_tools_streamed() {
    const stream = api.chat.completions.stream({ model, messages: hello, max_tokens: 200, tools: [tool], tool_choice: "required" });
    const message = await stream.finalMessage();
    assert.equal(message.tool_calls[0].function.name, "weather");
    assert(["the", "fox"].includes(JSON.parse(message.tool_calls[0].function.arguments).city));
  },
  async openai_embeddings() {
    for (const encoding_format of [undefined, "float"]) { // the client's own default is base64
      const r = await api.embeddings.create({ model, input: ["the dog", "fox"], encoding_format });
      const norm = r.data[0].embedding.reduce((sum, x) => sum + x * x, 0);
      assert.equal(r.data.length, 2);
      assert(Math.abs(norm - 1) < 1e-3);
    }
  },
  async openai_response() {
    const r = await api.responses.create(brief);
    assert.equal(r.status, "incomplete");
    assert.equal(r.incomplete_details.reason, "max_output_tokens");
    assert.equal(r.usage.output_tokens, 8);
    assert(r.output_text && r.store === false);
    await api.responses.create({ ...brief, input: [...hello, ...r.output, ...hello] });
  },
  async openai_response_stream() {
    let text = "", last;
    for await (const e of await api.responses.create({ ...brief, stream: true })) {
      assert.equal(e.sequence_number, last ? last.sequence_number + 1 : 0);
      if (e.type === "response.output_text.delta") text += e.delta;
      last = e;
    }
    const whole = await api.responses.create(brief);
    const helped = await api.responses.stream(brief).finalResponse();
    assert.equal(last.type, "response.incomplete");
    assert.equal(text, whole.output_text);
    assert.equal(helped.output_text, text);
  },
  async openai_response_parsed() {
    const format = { type: "json_schema", name: "x", schema, strict: true };
    const r = await api.responses.parse({ model, input: "the", max_output_tokens: 100, text: { format } });
    assert.equal(typeof JSON.parse(r.output_text).the, "boolean");
  },
  async openai_response_tools() {
    const tools = [{ type: "function", strict: true, ...tool.function }];
    const stream = api.responses.stream({ model, input: hello, tools, tool_choice: "required" });
    const r = await stream.finalResponse();
    const [call] = r.output;
    assert.equal(call.type, "function_call");
    assert(["the", "fox"].includes(JSON.parse(call.arguments).city));
    const output = { type: "function_call_output", call_id: call.call_id, output: "fox" };
    assert((await api.responses.create({ ...brief, input: [...hello, call, output] })).output_text);
  },
  async openai_response_errors() {
    for (const members of [{ previous_response_id: "resp_1" }, { tools: [{ type: "web_search" }] }, { background: true }]) {
      await assert.rejects(api.responses.create({ ...brief, ...members }), OpenAI.BadRequestError);
    }
    await assert.rejects(api.responses.create({ ...brief, model: "no" }), OpenAI.NotFoundError);
  },
  async openai_errors() {
    await assert.rejects(api.chat.completions.create({ model: "no", messages: hello }), OpenAI.NotFoundError);
    await assert.rejects(api.chat.completions.create({ model, messages: [] }), OpenAI.BadRequestError);
  },
  async ollama_lists() {
    assert((await oll.list()).models.some((m) => m.model === model + ":latest"));
    assert.equal((await oll.show({ model })).details.format, "gguf");
    assert((await oll.ps()).models.some((m) => m.model === model + ":latest"));
    assert((await oll.version()).version);
  },
  async ollama_generate() {
    const r = await oll.generate({ model, prompt: "the", raw: true, options: { temperature: 0, num_predict: 6 } });
    assert(r.done && r.response);
    assert.equal(r.eval_count, 6);
  },
  async ollama_context() {
    const request = { model, prompt: "the", options: { temperature: 0, num_predict: 6 } };
    const first = await oll.generate(request);
    const second = await oll.generate({ ...request, context: first.context });
    assert.deepEqual(second.context.slice(0, first.context.length), first.context);
    assert(second.context.length > first.context.length);
  },
  async ollama_chat_stream() {
    let text = "", last;
    for await (const part of await oll.chat({ model, messages: hello, stream: true, options: { temperature: 0, num_predict: 6 } })) {
      text += part.message.content;
      last = part;
    }
    assert(last.done && text);
  },
  async ollama_format() {
    const r = await oll.chat({ model, messages: hello, format: schema, options: { num_predict: 100 } });
    assert.equal(typeof JSON.parse(r.message.content).the, "boolean");
  },
  async ollama_embed() {
    assert.equal((await oll.embed({ model, input: ["the", "dog"] })).embeddings.length, 2);
  },
  async ollama_errors() {
    await assert.rejects(oll.generate({ model: "no", prompt: "x" }), (e) => e.status_code === 404 && /not found/.test(e.error));
  },
};

(async () => {
  let failed = 0;
  for (const [name, run] of Object.entries(cases)) {
    try {
      await run();
      console.log("ok  ", name);
    } catch (e) { // a case may fail in any way
      failed++;
      console.log("FAIL", name, e.constructor.name, String(e.message).slice(0, 300));
    }
  }
  process.exit(failed ? 1 : 0);
})();

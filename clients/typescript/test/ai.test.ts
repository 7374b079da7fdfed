/** The real AI SDK with its mock model, over a real server. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { generateText, stepCountIs, streamText, wrapLanguageModel } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV3 } from "ai/test";
import { KeMem } from "kemem";
import { memoryMiddleware, memoryTools } from "kemem/ai";
import { connected, deadUrl } from "./servers.js";

const memory = connected();

type Generated = Awaited<ReturnType<MockLanguageModelV3["doGenerate"]>>;
type Streamed = Awaited<ReturnType<MockLanguageModelV3["doStream"]>>;
type StreamPart = Streamed["stream"] extends ReadableStream<infer P> ? P : never;

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

/** A reply of a model. */
function says(text: string): Generated {
  const finishReason = { unified: "stop" as const, raw: "stop" };
  return { content: [{ type: "text", text }], finishReason, usage, warnings: [] };
}

/** A model's call of a tool. */
function calls(toolName: string, input: object): Generated {
  const call = { type: "tool-call", toolCallId: toolName, toolName, input: JSON.stringify(input) };
  const finishReason = { unified: "tool-calls" as const, raw: "tool_calls" };
  return { content: [call as Generated["content"][number]], finishReason, usage, warnings: [] };
}

/** A reply of a model in pieces. */
function streams(...deltas: string[]): Streamed {
  const parts: StreamPart[] = [
    { type: "stream-start", warnings: [] },
    { type: "text-start", id: "t" },
    ...deltas.map((delta) => ({ type: "text-delta" as const, id: "t", delta })),
    { type: "text-end", id: "t" },
    { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage },
  ];
  return { stream: convertArrayToReadableStream(parts) };
}

/** The results of the tools that a model calls, one after the other. */
async function results(tools: ReturnType<typeof memoryTools>, ...answers: Generated[]) {
  const model = new MockLanguageModelV3({ doGenerate: [...answers, says("好的")] });
  const stopWhen = stepCountIs(answers.length + 1);
  const { steps } = await generateText({ model, tools, stopWhen, prompt: "你好" });
  return steps.flatMap((step) => step.content).filter((part) => part.type.startsWith("tool-"));
}

for (const [language, fact, question] of [
  ["zh", "用户对花生过敏", "花生过敏"],
  ["en", "The user is allergic to peanuts", "peanuts"],
] as const) {
  test(`a model keeps, finds, recalls and forgets (${language})`, async () => {
    const user_id = `tools-${language}`;
    const tools = memoryTools(memory, { user_id, session_id: "s_1", language });
    await results(tools, calls("add_memory", { content: fact }));
    const [note] = (await memory.getAll({ user_id })).results;
    assert.deepEqual([note?.memory, note?.session_id], [fact, "s_1"]);

    const otherSession = memoryTools(memory, { user_id, session_id: "s_2", language });
    const found = await results(
      otherSession,
      calls("search_memories", { query: question }),
      calls("recall_memories", { question }),
    );
    const outputs = found.filter((part) => part.type === "tool-result").map((part) => part.output);
    assert.equal(outputs.length, 2, JSON.stringify(found));
    for (const output of outputs) assert.ok(JSON.stringify(output).includes(fact));

    await results(tools, calls("forget_memory", { memory_key: note!.id }));
    assert.deepEqual((await memory.getAll({ user_id })).results, []);
  });
}

test("no argument of a model leads to another user", async () => {
  const { results: added } = await memory.add("用户的密语是芝麻 sesame", { user_id: "bob", infer: false });
  const tools = memoryTools(memory, { user_id: "eve" });
  const parts = await results(
    tools,
    calls("search_memories", { query: "密语 sesame", user_id: "bob" }),
    calls("recall_memories", { question: "密语 sesame", user_id: "bob" }),
    calls("add_memory", { content: "planted", user_id: "bob" }),
    calls("forget_memory", { memory_key: added[0]!.id, user_id: "bob" }),
  );
  assert.ok(!JSON.stringify(parts).includes("芝麻"));
  const kinds = parts.filter((it) => it.type !== "tool-call").map((it) => it.type);
  assert.deepEqual(kinds, ["tool-result", "tool-result", "tool-result", "tool-error"]);
  assert.equal((await memory.getAll({ user_id: "bob" })).results.length, 1);
});

for (const [language, fact, question, heading] of [
  ["zh", "用户不吃辣", "我吃辣吗？", "以下是与用户这句话有关的记忆"],
  ["en", "User lives in Berlin", "Where do I live, in Berlin?", "What is remembered"],
] as const) {
  test(`the middleware shows memories to the model, and stores what is said (${language})`, async () => {
    const user_id = `middleware-${language}`;
    await memory.add(fact, { user_id, infer: false });
    const mock = new MockLanguageModelV3({
      doGenerate: says("你好 hello"),
      doStream: streams("再", "见 bye"),
    });
    const middleware = memoryMiddleware(memory, { user_id, session_id: "s" });
    const model = wrapLanguageModel({ model: mock, middleware });

    const { text } = await generateText({ model, system: "Be kind.", prompt: question });
    assert.equal(text, "你好 hello");
    const [system, user] = mock.doGenerateCalls[0]!.prompt;
    assert.equal(system?.content, "Be kind.");
    const [first, last] = (user?.content as { text: string }[]).map((part) => part.text);
    assert.ok(first?.startsWith(heading) && first.includes(fact), first);
    assert.equal(last, question);

    assert.equal(await streamText({ model, prompt: question }).text, "再见 bye");
    const { items } = await memory.messages({ user_id });
    const said = items.reverse().map((it) => it.content);
    assert.deepEqual(said, [fact, question, "你好 hello", question, "再见 bye"]);
  });
}

test("a turn with calls of tools is stored once, when the model has answered", async () => {
  const user_id = "middleware-tools";
  const mock = new MockLanguageModelV3({
    doGenerate: [calls("search_memories", { query: "茶" }), says("是茶 tea")],
  });
  const model = wrapLanguageModel({ model: mock, middleware: memoryMiddleware(memory, { user_id }) });
  const tools = memoryTools(memory, { user_id });
  await generateText({ model, tools, stopWhen: stepCountIs(3), prompt: "我喜欢什么？" });
  const { items } = await memory.messages({ user_id });
  assert.deepEqual(items.map((it) => it.content), ["是茶 tea", "我喜欢什么？"]);
});

test("a memory that fails does not keep the model from replying", async () => {
  const errors: unknown[] = [];
  const gone = new KeMem({ baseUrl: await deadUrl(), maxRetries: 0 });
  const onError = (error: unknown) => errors.push((error as Error).name);
  const model = wrapLanguageModel({
    model: new MockLanguageModelV3({ doGenerate: says("hi") }),
    middleware: memoryMiddleware(gone, { user_id: "u", onError }),
  });
  assert.equal((await generateText({ model, prompt: "你好" })).text, "hi");
  assert.deepEqual(errors, ["ConnectionFailed", "ConnectionFailed"]);
});

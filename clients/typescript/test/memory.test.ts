/** Memories, messages, sessions and imports of a real server, in both languages. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { NotFound, type Step } from "kemem";
import { BASE_URL, connected, TOKEN, until } from "./servers.js";

const memory = connected();

const TALKS = [
  { language: "Chinese", said: "我住在北京，不吃辣。", question: "我吃辣吗？", fact: "用户不吃辣" },
  {
    language: "English",
    said: "I live in Berlin. I'm allergic to peanuts.",
    question: "Where do I live?",
    fact: "User lives in Berlin",
  },
];

for (const { language, said, question, fact } of TALKS) {
  test(`what is said in ${language} is remembered, found and recalled`, async () => {
    const user_id = `talk/${language} 用户?#&+%2F`;
    const added = await memory.add(said, { user_id, metadata: { 来源: "app 😀" } });
    assert.ok(added.results.some((it) => it.memory === fact && it.event === "ADD"));

    const { results } = await memory.search(question, { user_id, kinds: ["user_info"], limit: 1 });
    assert.equal(results[0]?.memory, fact);
    assert.deepEqual(results[0]?.metadata, { 来源: "app 😀" });

    const steps: Step[] = [];
    const streamed = await memory.recall(question, { user_id }, { onStep: (it) => steps.push(it) });
    assert.deepEqual(steps, streamed.trace);
    assert.ok(steps.length > 0 && streamed.text.includes(fact));
    const whole = await memory.recall(question, { user_id });
    assert.deepEqual(whole.relevant_memory_keys, streamed.relevant_memory_keys);

    assert.ok((await memory.profile({ user_id, max_tokens: 200 })).text.includes(fact));
    const { items } = await memory.messages({ user_id });
    assert.deepEqual(items.map((it) => it.content), [said]);
    assert.equal(await memory.deleteAll({ user_id }), added.results.length + 1);
  });
}

test("a note is read, changed, followed and erased", async () => {
  const user_id = "note";
  const { results } = await memory.add("我喜欢茶 tea", { user_id, infer: false });
  const id = results[0]!.id;
  assert.equal((await memory.get(id, { user_id })).memory, "我喜欢茶 tea");
  const changed = await memory.update(id, { user_id, content: "我喜欢咖啡", metadata: { tag: "饮料" } });
  assert.deepEqual([changed.memory, changed.metadata], ["我喜欢咖啡", { tag: "饮料" }]);
  const filtered = await memory.getAll({ user_id, filters: { tag: "饮料" }, kinds: ["user_info"] });
  assert.deepEqual(filtered.results.map((it) => it.id), [id]);
  assert.deepEqual((await memory.getAll({ user_id, filters: { tag: "x" } })).results, []);
  const events = (await memory.history(id, { user_id })).map((it) => it.event);
  assert.deepEqual(events, ["update", "add"]);
  const { deleted, erased } = await memory.delete(id, { user_id, sources: true });
  assert.deepEqual([deleted, erased.length], [2, 1]);
  await assert.rejects(memory.get(id, { user_id }), NotFound);
  assert.deepEqual((await memory.forgotten({ user_id })).map((it) => it.memory_id), [id]);
});

test("pages end, and their cursors lead on", async () => {
  const user_id = "pages";
  const messages = ["一", "two", "三"].map((content) => ({ role: "user", content }));
  assert.equal((await memory.ingest(messages, { user_id })).inserted.length, 3);
  const seen: string[] = [];
  let cursor: string | null | undefined;
  do {
    const page = await memory.messages({ user_id, page_size: 2, cursor: cursor ?? null });
    seen.push(...page.items.map((it) => it.content));
    cursor = page.next_cursor;
  } while (cursor);
  assert.deepEqual(seen, ["三", "two", "一"]);
});

test("messages are searched, and read in their context", async () => {
  const user_id = "log";
  await memory.ingest(
    [
      { role: "user", content: "周五吃火锅吧", message_id: "m_1", ts: "2026-01-26T10:47:00Z" },
      { role: "assistant", content: "Hotpot it is", message_id: "m_2", ts: "2026-01-26T10:48:00Z" },
    ],
    { user_id },
  );
  const filter = { role: "user" as const, time_range: { since: "2026-01-01T00:00:00+08:00" } };
  const byWords = await memory.lexicalSearch("火锅", { user_id, filter });
  assert.deepEqual(byWords.items.map((it) => it.message_id), ["m_1"]);
  const [hit] = await memory.hybridSearch("hotpot", { user_id, return_fields: ["content"] });
  assert.equal(hit?.content, "Hotpot it is");
  const near = await memory.neighbors("m_2", { user_id, before: 1 });
  assert.deepEqual(near.map((it) => it.message_id), ["m_1", "m_2"]);
});

test("a session gives a context, is summarized and ended", async () => {
  const owner = { user_id: "session" };
  const session_id = "s 1?会话";
  await memory.add("我下周去成都。", { ...owner, session_id });
  assert.deepEqual((await memory.sessions(owner)).items.map((it) => it.id), [session_id]);
  const context = await memory.context(session_id, { ...owner, max_tokens: 500 });
  assert.match(context.text, /我下周去成都/);
  assert.equal(await memory.summarize(session_id, owner), null);
  const { checkpoint_id, layers } = await memory.checkpoint(session_id, owner);
  const restored = await memory.restoreCheckpoint(session_id, { ...owner, checkpoint_id });
  assert.deepEqual(restored.layers, layers);
  assert.deepEqual((await memory.endSession(session_id, owner)).problems, []);
  assert.ok((await memory.sessions(owner)).items[0]?.ended_at);
});

test("relations are drawn, drawn again, and forgotten by a policy", async () => {
  const user_id = "graph";
  await memory.add("My sister Mia lives in Hamburg.", { user_id });
  const relations = await memory.graph({ user_id, around: ["Mia"], hops: 1 });
  assert.ok(relations.some((it) => it.destination === "Hamburg"));
  assert.deepEqual((await memory.extract({ user_id })).problems, []);
  assert.deepEqual(await memory.forget({ user_id }), {});
});

test("a file is imported", async () => {
  const user_id = "import";
  const line = JSON.stringify({ role: "user", content: "我养了一只猫 a cat" });
  const file = new Blob([line, "\n"]);
  const { id } = await memory.importFile(file, { name: "talk.jsonl", user_id });
  const ended = await until(async () => {
    const state = await memory.importState(id, { user_id });
    return state.state === "done" ? state : undefined;
  });
  assert.equal(ended.stored?.inserted, 1);
  assert.deepEqual((await memory.imports({ user_id })).map((it) => it.id), [id]);
});

test("operators see who is there and what is to do", async () => {
  await memory.ingest("hi", { user_id: "someone" });
  assert.ok((await memory.users({ limit: 1000 })).items.some((it) => it.id === "someone"));
  assert.deepEqual((await memory.agents()).items.map((it) => it.id), ["default"]);
  await memory.ingest({ content: "hi", session_id: "named" }, { user_id: "someone" });
  for (const [level, id, owner] of [
    ["user", "someone", {}],
    ["session", "named", { user_id: "someone" }],
    ["agent", "default", {}],
  ] as const) {
    assert.equal((await memory.configure(level, id, { ...owner, name: "名字" })).name, "名字");
  }
  assert.ok(Number.isInteger(await memory.runJobs()));
  assert.ok(Array.isArray(await memory.jobs({ limit: 5 })));
  await assert.rejects(memory.retryJob("j_none"), NotFound);
  await memory.ready();
});

test("a token reaches its own user only", async () => {
  const bound = connected({ baseUrl: `${BASE_URL}/`, apiKey: TOKEN });
  await bound.add("我叫安 Ann", { user_id: "ann" });
  assert.ok((await bound.getAll({ user_id: "ann", kinds: ["message"] })).results.length);
  await assert.rejects(bound.getAll({ user_id: "bob" }), NotFound);
  await assert.rejects(bound.users(), { name: "PermissionDenied", status: 403 });
});

test("a hit is voted on, and a user's data is counted and erased", async () => {
  const user_id = "one user 一位用户";
  await memory.add("I live in Berlin. 我住在柏林。", { user_id });
  const query = "Where do I live?";
  const { results } = await memory.search(query, { user_id, limit: 1 });
  const id = results[0]?.id ?? "";
  assert.equal((await memory.feedback(id, "up", { user_id, query })).vote, "up");
  assert.equal((await memory.inventory(user_id)).user_id, user_id);
  assert.equal((await memory.erase(user_id)).user_id, user_id);
  assert.deepEqual((await memory.getAll({ user_id })).results, []);
});

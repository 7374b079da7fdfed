/** Chats with a model that remembers: whole replies and streams. The model is a scripted one. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Unavailable, type ChatEvent, type GroupEvent } from "kemem";
import { CHAT_URL, connected, until } from "./servers.js";

const memory = connected({ baseUrl: CHAT_URL });
const members = [{ id: "lin", name: "林" }, { id: "amy" }];

async function collected<T>(events: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const event of events) all.push(event);
  return all;
}

test("a reply comes whole, with what was recalled for it", async () => {
  const user_id = "chat";
  await memory.add("用户住在柏林 lives in Berlin", { user_id, infer: false });
  const reply = await memory.chat("我住在哪里？ Berlin?", { user_id, session_id: "s" });
  assert.equal(reply.text, "你好，世界 hello");
  assert.ok(reply.recall.some((it) => it.content.includes("柏林")));
  const { items } = await memory.messages({ user_id });
  assert.equal(items.find((it) => it.message_id === reply.message_id)?.content, reply.text);
});

test("a reply streams: recall, calls of tools, text, done", async () => {
  const options = { user_id: "stream", session_id: "s" };
  const events = await collected<ChatEvent>(memory.chatStream("call a tool", options));
  const types = events.map((it) => it.type);
  assert.deepEqual([...new Set(types)], ["recall", "tool_call", "tool_result", "text", "done"]);
  assert.equal(types.indexOf("done"), types.length - 1);
  const text = events.map((it) => (it.type === "text" ? it.delta : "")).join("");
  const done = events.at(-1);
  assert.ok(done?.type === "done" && done.message_id);
  assert.deepEqual([done.text, text], ["你好，世界 hello", "你好，世界 hello"]);
  const call = events.find((it) => it.type === "tool_call");
  assert.deepEqual(JSON.parse(call!.arguments), { query: "猫 cat" });
});

test("a turn that fails says so, with what came of the reply", async () => {
  const options = { user_id: "failing", session_id: "s" };
  const broken = await memory.chat("break", options);
  assert.equal(broken.text, "你好，世界 he");
  assert.equal(broken.error?.code, "UNAVAILABLE");
  const seen: ChatEvent[] = [];
  await assert.rejects(
    async () => {
      for await (const event of memory.chatStream("break", options)) seen.push(event);
    },
    (error: unknown) => {
      assert.ok(error instanceof Unavailable);
      assert.equal(error.details.text, "你好，世界 he");
      return true;
    },
  );
  assert.equal(seen[0]?.type, "recall");
});

test("who leaves the loop ends the turn, and the part that came is stored", async () => {
  const user_id = "leaving";
  for await (const event of memory.chatStream("slowly", { user_id, session_id: "s" })) {
    if (event.type === "text") break;
  }
  const part = await until(async () => {
    return (await memory.messages({ user_id, role: "assistant" })).items[0];
  });
  assert.equal(part.metadata.partial, true);
});

test("the members of a group reply, and one that fails does not end the turn", async () => {
  const options = { user_id: "group", members };
  const replies = await memory.groupTurn("g?1", "大家好 hello", options);
  assert.deepEqual(replies.map((it) => it.member_id), ["lin", "amy"]);
  assert.deepEqual(replies.map((it) => it.text), ["你好，世界 hello", "你好，世界 hello"]);

  const events = await collected<GroupEvent>(memory.groupTurnStream("g?2", "break", options));
  const errors = events.filter((it) => it.type === "error");
  assert.deepEqual(errors.map((it) => it.member_id), ["lin", "amy"]);
  assert.deepEqual(errors.map((it) => it.error.code), ["UNAVAILABLE", "UNAVAILABLE"]);
  const last = events.at(-1);
  assert.deepEqual([last?.type, last?.member_id], ["done", undefined]);
});

test("a server without a model refuses a chat", async () => {
  const error = { name: "Unavailable", code: "UNAVAILABLE", status: 501 };
  await assert.rejects(connected().chat("你好", { user_id: "u", session_id: "s" }), error);
  const events = connected().chatStream("你好", { user_id: "u", session_id: "s" });
  await assert.rejects(events.next(), error);
});

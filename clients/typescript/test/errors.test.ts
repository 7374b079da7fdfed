/** Each failure gives the error that names it; what is safe is tried again, and nothing else. */

import assert from "node:assert/strict";
import { test } from "node:test";
import * as kemem from "kemem";
import { answer, BASE_URL, connected, deadUrl, scripted } from "./servers.js";

const owner = { user_id: "errors" };
const empty = { results: [] };

test("a wrong key is told", async () => {
  const error = { name: "Unauthenticated", code: "UNAUTHENTICATED", status: 401 };
  await assert.rejects(connected({ apiKey: "错 wrong" }).getAll(owner), error);
  await assert.rejects(new kemem.KeMem({ baseUrl: BASE_URL }).getAll(owner), error);
});

test("another user's memory is not found, as one that does not exist", async () => {
  const memory = connected();
  const { results } = await memory.add("我的秘密 a secret", { ...owner, infer: false });
  const [own, none] = [results[0]!.id, "n_none"];
  for (const id of [own, none]) {
    const message = `no memory '${id}'`;
    const error = { name: "NotFound", code: "NOT_FOUND", status: 404, message };
    await assert.rejects(memory.get(id, { user_id: "stranger" }), error);
    await assert.rejects(memory.delete(id, { user_id: "stranger" }), error);
  }
  assert.equal((await memory.get(own, owner)).memory, "我的秘密 a secret");
});

test("a bad value is named with its field", async () => {
  const memory = connected();
  for (const call of [
    () => memory.search("茶", { ...owner, limit: 0 }),
    () => memory.getAll({ ...owner, limit: 0 }),
  ]) {
    await assert.rejects(call, (error: unknown) => {
      assert.ok(error instanceof kemem.InvalidArgument && error instanceof kemem.KeMemError);
      assert.deepEqual([error.code, error.status], ["INVALID_ARGUMENT", 400]);
      assert.equal(error.field, "limit");
      assert.match(error.message, /limit/);
      return true;
    });
  }
  await assert.rejects(memory.get("n_1", {}), { name: "InvalidArgument", field: "user_id" });
});

test("an id that no URL can carry is refused before it is sent", async () => {
  const memory = connected();
  for (const id of ["", ".", "..", undefined as unknown as string]) {
    const error = { name: "InvalidArgument", field: "memory_id" };
    await assert.rejects(memory.delete(id, owner), error);
  }
  assert.throws(() => new kemem.KeMem({ baseUrl: "localhost:8420" }), { field: "baseUrl" });
});

test("a server that is down is told, after the retries of what is safe", async () => {
  const memory = new kemem.KeMem({ baseUrl: await deadUrl() });
  const error = { name: "ConnectionFailed", code: "CONNECTION_FAILED", status: undefined };
  await assert.rejects(memory.getAll(owner), error);
  await assert.rejects(memory.add("hi", owner), /cannot be reached: .*ECONNREFUSED/);
  await assert.rejects(memory.chatStream("hi", { ...owner, session_id: "s" }).next(), error);
});

test("a call that takes too long ends", async () => {
  const silent = () => undefined;
  const { url } = await scripted(silent, (response) => void response.writeHead(200).write("{"));
  const error = { name: "TimedOut", code: "TIMED_OUT", message: /within 50 ms/ };
  const memory = new kemem.KeMem({ baseUrl: url, timeout: 50 });
  await assert.rejects(memory.getAll(owner), error);
  await assert.rejects(memory.add("hi", owner), error); // the answer has begun
});

test("a stream may last longer than the limit, but not be silent for so long", async (context) => {
  const timers: Array<() => void> = [];
  context.mock.method(globalThis, "setTimeout", (end: () => void) => timers.push(end));
  let stream: ReadableStreamDefaultController<Uint8Array>;
  const body = new ReadableStream<Uint8Array>({ start: (controller) => void (stream = controller) });
  const fetch: typeof globalThis.fetch = async (_, init) => {
    init?.signal?.addEventListener("abort", () => stream.error(new Error("hung up")));
    return new Response(body);
  };
  const memory = new kemem.KeMem({ fetch, timeout: 300 });
  const events = memory.chatStream("hi", { ...owner, session_id: "s" });
  const first = events.next();
  const bytes = new TextEncoder().encode('event: text\ndata: {"type":"text","delta":"好"}\r\n\r\n');
  const middle = bytes.length - 8; // in the midst of a character
  for (const piece of [": ping\n\n", bytes.slice(0, middle), bytes.slice(middle)]) {
    const before = timers.length;
    stream!.enqueue(typeof piece === "string" ? new TextEncoder().encode(piece) : piece);
    await new Promise(setImmediate);
    assert.ok(timers.length > before, "the limit begins anew");
  }
  assert.deepEqual((await first).value, { type: "text", delta: "好" });
  const second = events.next();
  timers.at(-1)!();
  await assert.rejects(second, { name: "TimedOut" });
});

test("a stream that ends early is an error", async () => {
  const { url } = await scripted(answer(200, 'data: {"type":"text","delta":"好"}\n\n'));
  const events = new kemem.KeMem({ baseUrl: url }).chatStream("hi", { ...owner, session_id: "s" });
  assert.deepEqual((await events.next()).value, { type: "text", delta: "好" });
  await assert.rejects(events.next(), { name: "ConnectionFailed" });
});

test("a signal ends a call with its own reason, also while it waits to try again", async () => {
  const reason = new Error("不要了 never mind");
  const controller = new AbortController();
  const { url, asked } = await scripted((response) => {
    response.writeHead(503, { "retry-after": "30" }).end();
    setTimeout(() => controller.abort(reason), 100);
  });
  const memory = new kemem.KeMem({ baseUrl: url });
  await assert.rejects(memory.getAll(owner, { signal: AbortSignal.abort(reason) }), reason);
  assert.deepEqual(asked, []);
  await assert.rejects(memory.getAll(owner, { signal: controller.signal }), reason);
  assert.equal(asked.length, 1);
});

test("a read is tried again, a write only where it was refused for now", async () => {
  const busy = answer(429, "slow down", { "retry-after": "0" });
  const reset = (response: { destroy: () => unknown }) => void response.destroy();
  const reads = await scripted(answer(503, ""), reset, answer(200, empty));
  assert.deepEqual(await new kemem.KeMem({ baseUrl: reads.url }).getAll(owner), empty);
  assert.equal(reads.asked.length, 3);

  const date = new Date(0).toUTCString();
  const later = await scripted(busy, answer(429, "", { "retry-after": date }), answer(200, empty));
  assert.deepEqual(await new kemem.KeMem({ baseUrl: later.url }).search("茶", owner), empty);

  const writes = await scripted(answer(503, ""), reset, answer(429, ""), busy, busy, busy, busy);
  const memory = new kemem.KeMem({ baseUrl: writes.url });
  for (const name of ["Unavailable", "ConnectionFailed", "RateLimited", "RateLimited"]) {
    await assert.rejects(memory.add("hi", owner), { name });
  }
  assert.equal(writes.asked.length, 3 + 3);
  await assert.rejects(
    new kemem.KeMem({ baseUrl: writes.url, maxRetries: 0 }).add("hi", owner),
    { name: "RateLimited" },
  );
});

test("a write with an idempotency key is tried again, and done once", async () => {
  const key = { idempotencyKey: "甲 1" };
  const running = answer(409, "in progress", { "retry-after": "0" });
  const reset = (response: { destroy: () => unknown }) => void response.destroy();
  const writes = await scripted(reset, running, answer(200, empty));
  assert.deepEqual(await new kemem.KeMem({ baseUrl: writes.url }).add("hi", owner, key), empty);
  assert.equal(writes.asked.length, 3);

  const [memory, once] = [connected(), { user_id: "once" }];
  const first = await memory.add("我喜欢茶", { ...once, infer: false }, key);
  assert.deepEqual(await memory.add("我喜欢茶", { ...once, infer: false }, key), first);
  assert.equal((await memory.getAll(once)).results.length, 1);
  const error = { name: "InvalidArgument", status: 422, field: "Idempotency-Key" };
  await assert.rejects(memory.add("我喜欢咖啡", { ...once, infer: false }, key), error);
});

test("a pause that does not end in time is not waited for", async () => {
  const { url, asked } = await scripted(answer(429, "", { "retry-after": "3600" }));
  await assert.rejects(new kemem.KeMem({ baseUrl: url }).add("hi", owner), { name: "RateLimited" });
  assert.equal(asked.length, 1);
});

test("what another server answers is told as it is", async () => {
  const { url } = await scripted(
    answer(200, "<html>"),
    answer(502, "<html>Bad Gateway"),
    answer(301, "", { location: "/elsewhere" }),
    answer(418, '{"error": "tea"}'),
  );
  const memory = new kemem.KeMem({ baseUrl: url, maxRetries: 0 });
  const call = () => memory.getAll(owner);
  await assert.rejects(call, { code: "INVALID_ANSWER", message: /is it a KeMem server/ });
  await assert.rejects(call, { name: "Unavailable", status: 502, message: /Bad Gateway/ });
  await assert.rejects(call, { name: "ConnectionFailed", message: /redirect/ });
  await assert.rejects(call, { name: "KeMemError", code: "UNKNOWN", status: 418 });
});

import { ConnectionFailed, describedError, type Reason } from "./errors.js";
import type { ServerEvent } from "./events.js";
import { Transport, type ClientOptions, type RequestOptions } from "./transport.js";
import type * as kemem from "./types.js";

/** For a recall that is to be followed while it goes on. */
export interface RecallRequestOptions extends RequestOptions {
  /** Called with each step of the recall as it happens. */
  onStep?: (step: kemem.Step) => void;
}

/**
 * A client of a KeMem server.
 *
 *     const memory = new KeMem({ baseUrl: "http://127.0.0.1:8420" });
 *     await memory.add("我不吃辣。", { user_id: "ann" });
 *     const { results } = await memory.search("hotpot", { user_id: "ann", limit: 3 });
 *
 * Methods have the names of the Python methods in camelCase. Fields of options and results are
 * those of the HTTP API, unchanged: `user_id`, not `userId`. The last argument of each method may
 * have a `signal`, a `timeout` and, for writes, an `idempotencyKey`.
 */
export class KeMem {
  readonly #http: Transport;

  constructor(options: ClientOptions = {}) {
    this.#http = new Transport(options);
  }

  // Memories

  /** Store messages and remember what they say. */
  add(
    messages: kemem.Messages,
    options: kemem.AddOptions,
    request?: RequestOptions,
  ): Promise<kemem.Added> {
    const body = { ...options, messages };
    return this.#http.call("POST /v1/memories", { body }, request);
  }

  /** Notes and messages that answer a question, best first. */
  search(
    query: string,
    options: kemem.SearchOptions,
    request?: RequestOptions,
  ): Promise<kemem.Hits> {
    const body = { ...options, query };
    return this.#http.call("POST /v1/memories/search", { body }, request);
  }

  /** The evidence that a question needs, found step by step; `text` is for a prompt. */
  async recall(
    question: string,
    options: kemem.RecallOptions,
    { onStep, ...request }: RecallRequestOptions = {},
  ): Promise<kemem.Recalled> {
    const body = { ...options, question };
    if (!onStep) return this.#http.call("POST /v1/recall", { body }, request);
    for await (const { name, data } of this.#http.events("POST /v1/recall", { body }, request)) {
      if (name === "step") onStep(data as kemem.Step);
      if (name === "result") return data as kemem.Recalled;
      if (name === "error") throw failure(data);
    }
    throw brokenOff();
  }

  /** Notes, newest first; with `kinds: ["message"]` the messages. */
  getAll(options: kemem.ListOptions, request?: RequestOptions): Promise<kemem.Items> {
    return this.#http.call("GET /v1/memories", { query: options }, request);
  }

  /** One note or message. */
  get(memory_id: string, owner: kemem.Owner, request?: RequestOptions): Promise<kemem.Item> {
    const parts = { path: { memory_id }, query: owner };
    return this.#http.call("GET /v1/memories/{memory_id}", parts, request);
  }

  /** A note with other words or metadata; messages never change. */
  update(
    memory_id: string,
    { content, metadata, ...owner }: kemem.UpdateOptions,
    request?: RequestOptions,
  ): Promise<kemem.Item> {
    const body = { content: content ?? null, metadata: metadata ?? null };
    const parts = { path: { memory_id }, query: owner, body };
    return this.#http.call("PATCH /v1/memories/{memory_id}", parts, request);
  }

  /** Erase one memory; the messages that a note cites are withdrawn, or erased with `sources`. */
  delete(
    memory_id: string,
    options: kemem.DeleteOptions,
    request?: RequestOptions,
  ): Promise<kemem.Deletion> {
    const parts = { path: { memory_id }, query: options };
    return this.#http.call("DELETE /v1/memories/{memory_id}", parts, request);
  }

  /** Erase all that carries the ids; with filters only notes. Returns how many rows went. */
  async deleteAll(options: kemem.DeleteAllOptions, request?: RequestOptions): Promise<number> {
    const parts = { query: options };
    return (await this.#http.call("DELETE /v1/memories", parts, request)).deleted;
  }

  /** What is known of a user now, by topic, as one card; `text` is for a prompt. */
  profile(
    { user_id, ...query }: kemem.ProfileOptions,
    request?: RequestOptions,
  ): Promise<kemem.Profile> {
    const parts = { path: { user_id }, query };
    return this.#http.call("GET /v1/users/{user_id}/profile", parts, request);
  }

  /** Vote on a hit: for questions like `query` it rises or sinks, for this user. */
  feedback(
    memory_id: string,
    vote: "up" | "down",
    options: kemem.FeedbackOptions,
    request?: RequestOptions,
  ): Promise<kemem.Feedback> {
    const body = { ...options, memory_id, vote };
    return this.#http.call("POST /v1/feedback", { body }, request);
  }

  /** What became of a note, newest first. */
  async history(
    memory_id: string,
    options: kemem.ChangesOptions,
    request?: RequestOptions,
  ): Promise<kemem.Change[]> {
    const parts = { path: { memory_id }, query: options };
    return (await this.#http.call("GET /v1/memories/{memory_id}/history", parts, request)).items;
  }

  /** Draw facts and relations anew from stored messages. */
  extract(options: kemem.ExtractOptions, request?: RequestOptions): Promise<kemem.Added> {
    return this.#http.call("POST /v1/memories/extract", { body: options }, request);
  }

  /** Apply the policy of forgetting now: the ids of notes that went, each with the reason. */
  async forget(
    options: kemem.ForgetOptions,
    request?: RequestOptions,
  ): Promise<Record<string, string>> {
    const parts = { body: options };
    return (await this.#http.call("POST /v1/memories/forget", parts, request)).forgotten;
  }

  /** Notes that were deleted or forgotten, newest first, without their text. */
  async forgotten(
    options: kemem.ChangesOptions,
    request?: RequestOptions,
  ): Promise<kemem.Change[]> {
    const parts = { query: options };
    return (await this.#http.call("GET /v1/memories/forgotten", parts, request)).items;
  }

  /** Notes that a language model declared over, newest first. */
  async ended(options: kemem.EndedOptions, request?: RequestOptions): Promise<kemem.Change[]> {
    const parts = { query: options };
    return (await this.#http.call("GET /v1/memories/ended", parts, request)).items;
  }

  /** Make a note that has ended hold again. */
  reopen(
    memory_id: string,
    options: kemem.ReopenOptions,
    request?: RequestOptions,
  ): Promise<kemem.Item> {
    const parts = { path: { memory_id }, query: options };
    return this.#http.call("POST /v1/memories/{memory_id}/reopen", parts, request);
  }

  /** Relations near some entities, or the newest ones. */
  async graph(options: kemem.GraphOptions, request?: RequestOptions): Promise<kemem.Relation[]> {
    return (await this.#http.call("GET /v1/graph", { query: options }, request)).relations;
  }

  // Messages

  /** Store messages, nothing more: all or none, and each `message_id` once. */
  ingest(
    messages: kemem.Messages,
    { user_id }: { user_id: string },
    request?: RequestOptions,
  ): Promise<kemem.Ingested> {
    const parts = { path: { user_id }, body: { messages } };
    return this.#http.call("POST /v1/users/{user_id}/messages", parts, request);
  }

  /** A user's messages of a time range, newest first. */
  messages(
    { user_id, ...query }: kemem.MessagesOptions,
    request?: RequestOptions,
  ): Promise<kemem.Page<kemem.Message>> {
    const parts = { path: { user_id }, query };
    return this.#http.call("GET /v1/users/{user_id}/messages", parts, request);
  }

  /** A message and what was said around it, oldest first. */
  async neighbors(
    message_id: string,
    { user_id, ...query }: kemem.NeighborsOptions,
    request?: RequestOptions,
  ): Promise<kemem.Message[]> {
    const route = "GET /v1/users/{user_id}/messages/{message_id}/neighbors";
    const parts = { path: { user_id, message_id }, query };
    return (await this.#http.call(route, parts, request)).items;
  }

  /** Messages by their words, best first. */
  lexicalSearch(
    query_text: string,
    options: kemem.LexicalOptions,
    request?: RequestOptions,
  ): Promise<kemem.LexicalHits> {
    const body = { ...options, query_text };
    return this.#http.call("POST /v1/messages/lexical_search", { body }, request);
  }

  /** Messages by their meaning, nearest first: to a `query_text` or to a `query_embedding`. */
  async semanticSearch(
    options: kemem.SemanticOptions,
    request?: RequestOptions,
  ): Promise<kemem.SemanticHit[]> {
    const parts = { body: options };
    return (await this.#http.call("POST /v1/messages/semantic_search", parts, request)).items;
  }

  /** Messages by words and meaning together, with the reasons for each. */
  async hybridSearch(
    query_text: string,
    options: kemem.HybridOptions,
    request?: RequestOptions,
  ): Promise<kemem.HybridHit[]> {
    const parts = { body: { ...options, query_text } };
    return (await this.#http.call("POST /v1/messages/hybrid_search", parts, request)).items;
  }

  // Sessions

  /** The sessions of a user or agent, in the order of their ids. */
  sessions(
    options: kemem.SessionsOptions,
    request?: RequestOptions,
  ): Promise<kemem.Page<kemem.Entry>> {
    return this.#http.call("GET /v1/sessions", { query: options }, request);
  }

  /** What to put into a prompt: summaries of what is older, then the newest messages. */
  context(
    session_id: string,
    options: kemem.ContextOptions,
    request?: RequestOptions,
  ): Promise<kemem.Context> {
    const parts = { path: { session_id }, query: options };
    return this.#http.call("GET /v1/sessions/{session_id}/context", parts, request);
  }

  /** Bring the State of a session up to date; null while all of it still fits verbatim. */
  async summarize(
    session_id: string,
    options: kemem.SessionOptions,
    request?: RequestOptions,
  ): Promise<kemem.Checkpoint | null> {
    const route = "POST /v1/sessions/{session_id}/summarize";
    const parts = { path: { session_id }, body: options };
    return (await this.#http.call(route, parts, request)).checkpoint;
  }

  /** Keep a session's short-term memory as it is now. */
  checkpoint(
    session_id: string,
    options: kemem.SessionOptions,
    request?: RequestOptions,
  ): Promise<kemem.Checkpoint> {
    const parts = { path: { session_id }, body: options };
    return this.#http.call("POST /v1/sessions/{session_id}/checkpoint", parts, request);
  }

  /** Bring short-term memory back as it was at a checkpoint, the newest if none is named. */
  restoreCheckpoint(
    session_id: string,
    options: kemem.RestoreOptions,
    request?: RequestOptions,
  ): Promise<kemem.Checkpoint> {
    const route = "POST /v1/sessions/{session_id}/checkpoint/restore";
    return this.#http.call(route, { path: { session_id }, body: options }, request);
  }

  /** End a session: its experience becomes a note, its short-term memory goes. */
  endSession(
    session_id: string,
    options: kemem.SessionOptions,
    request?: RequestOptions,
  ): Promise<kemem.Added> {
    const parts = { path: { session_id }, body: options };
    return this.#http.call("POST /v1/sessions/{session_id}/end", parts, request);
  }

  // Chats

  /** A reply of the server's model, which is shown what it should remember. */
  chat(
    message: string,
    options: kemem.ChatOptions,
    request?: RequestOptions,
  ): Promise<kemem.ChatReply> {
    const body = { ...options, message };
    return this.#http.call("POST /v1/chat", { body }, request);
  }

  /** The same as events while it happens; to leave the loop ends the turn. */
  async *chatStream(
    message: string,
    options: kemem.ChatOptions,
    request?: RequestOptions,
  ): AsyncGenerator<kemem.ChatEvent, void, undefined> {
    const body = { ...options, message };
    yield* turn<kemem.ChatEvent>(this.#http.events("POST /v1/chat", { body }, request));
  }

  /** What each member of a group replies, one after the other. */
  async groupTurn(
    group_id: string,
    message: string,
    options: kemem.GroupOptions,
    request?: RequestOptions,
  ): Promise<kemem.MemberReply[]> {
    const parts = { path: { group_id }, body: { ...options, message } };
    return (await this.#http.call("POST /v1/groups/{group_id}/turns", parts, request)).replies;
  }

  /** The same as events, each with the `member_id` that it concerns. */
  async *groupTurnStream(
    group_id: string,
    message: string,
    options: kemem.GroupOptions,
    request?: RequestOptions,
  ): AsyncGenerator<kemem.GroupEvent, void, undefined> {
    const parts = { path: { group_id }, body: { ...options, message } };
    const events = this.#http.events("POST /v1/groups/{group_id}/turns", parts, request);
    yield* turn<kemem.GroupEvent>(events);
  }

  // Imports

  /** Import a file; a job reads it, and `importState` tells how far it is. */
  importFile(
    file: Blob | Uint8Array | string,
    options: kemem.ImportOptions,
    request?: RequestOptions,
  ): Promise<kemem.ImportState> {
    return this.#http.upload("POST /v1/import", options, file, request);
  }

  /** The imports of all users or of one, newest first. */
  async imports(
    options: { user_id?: string } = {},
    request?: RequestOptions,
  ): Promise<kemem.ImportState[]> {
    return (await this.#http.call("GET /v1/import", { query: options }, request)).items;
  }

  /** How far an import is, and what it stored. */
  importState(
    job_id: string,
    options: { user_id?: string } = {},
    request?: RequestOptions,
  ): Promise<kemem.ImportState> {
    const parts = { path: { job_id }, query: options };
    return this.#http.call("GET /v1/import/{job_id}", parts, request);
  }

  // For operators: these need the API key, a user's token is refused

  /** Every agent, in the order of their ids. */
  agents(
    options: kemem.PageOptions = {},
    request?: RequestOptions,
  ): Promise<kemem.Page<kemem.Entry>> {
    return this.#http.call("GET /v1/agents", { query: options }, request);
  }

  /** Every user, or those of an agent, in the order of their ids. */
  users(
    options: kemem.UsersOptions = {},
    request?: RequestOptions,
  ): Promise<kemem.Page<kemem.Entry>> {
    return this.#http.call("GET /v1/users", { query: options }, request);
  }

  /** How much of everything is kept of a user. */
  inventory(user_id: string, request?: RequestOptions): Promise<kemem.Inventory> {
    return this.#http.call("GET /v1/users/{user_id}/inventory", { path: { user_id } }, request);
  }

  /** Erase all that is kept of a user; the receipt says what went. */
  erase(user_id: string, request?: RequestOptions): Promise<kemem.Receipt> {
    return this.#http.call("DELETE /v1/users/{user_id}", { path: { user_id } }, request);
  }

  /** Name, type, configure, disable or enable an agent, a user or a session. */
  configure(
    level: "agent" | "user" | "session",
    id: string,
    options: kemem.ConfigureOptions,
    request?: RequestOptions,
  ): Promise<kemem.Entry> {
    const body = options;
    switch (level) {
      case "agent": {
        const path = { agent_id: id };
        return this.#http.call("PATCH /v1/agents/{agent_id}", { path, body }, request);
      }
      case "user": {
        const path = { user_id: id };
        return this.#http.call("PATCH /v1/users/{user_id}", { path, body }, request);
      }
      case "session": {
        const path = { session_id: id };
        return this.#http.call("PATCH /v1/sessions/{session_id}", { path, body }, request);
      }
    }
  }

  /** Work that waits or has failed. */
  async jobs(options: { limit?: number } = {}, request?: RequestOptions): Promise<kemem.Job[]> {
    return (await this.#http.call("GET /v1/jobs", { query: options }, request)).items;
  }

  /** Do the work that is due now; returns how many steps were done. */
  async runJobs(request?: RequestOptions): Promise<number> {
    return (await this.#http.call("POST /v1/jobs/run", {}, request)).done;
  }

  /** Let a job that was given up be tried again. */
  retryJob(job_id: string, request?: RequestOptions): Promise<kemem.Job> {
    return this.#http.call("POST /v1/jobs/{job_id}/retry", { path: { job_id } }, request);
  }

  /** Resolves if the server is ready to serve, and rejects if not; needs no credential. */
  async ready(request?: RequestOptions): Promise<void> {
    await this.#http.call("GET /readyz", {}, request);
  }
}

/** The events of a turn up to its last `done`; an error that ends it is thrown. */
async function* turn<E extends kemem.GroupEvent>(
  events: AsyncIterable<ServerEvent>,
): AsyncGenerator<E, void, undefined> {
  for await (const { data } of events) {
    const event = data as E;
    const ofAll = event.member_id === undefined;
    if (event.type === "error" && ofAll) throw failure(event);
    yield event;
    if (event.type === "done" && ofAll) return;
  }
  throw brokenOff();
}

function failure(data: unknown) {
  return describedError((data as { error: Reason }).error);
}

function brokenOff() {
  return new ConnectionFailed("the server cannot be reached: the stream broke off");
}

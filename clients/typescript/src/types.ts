/** The records of the server under the names that they have in Python. */

import type { Reason } from "./errors.js";
import type { Answer, Body, Query } from "./routes.js";
import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** Each of these fields has another name, which is the one to use. */
type Alias = "run_id" | "top_k";

export type Added = Schemas["Added"];
export type Change = Schemas["Change"];
export type ChatReply = Schemas["ChatReply"];
export type Checkpoint = Schemas["Checkpoint"];
export type Context = Schemas["Context"];
export type Deletion = Schemas["Deletion"];
export type Entry = Schemas["Entry"];
export type Evidence = Schemas["Evidence"];
export type GroupMember = Schemas["GroupMember"];
export type HybridHit = Schemas["HybridHit"];
export type ImportState = Schemas["ImportState"];
export type Ingested = Schemas["Ingested"];
export type Job = Schemas["Job"];
export type LexicalHits = Schemas["LexicalHits"];
export type MemberReply = Schemas["MemberReply"];
export type Message = Schemas["Message"];
export type Profile = Schemas["Profile"];
export type Recalled = Schemas["Recalled"];
export type RecalledMemory = Schemas["RecalledMemory"];
export type Relation = Schemas["Relation"];
export type SemanticHit = Schemas["SemanticHit"];
export type Step = Schemas["Step"];

/** A note or a message. */
export type Item = Answer<"/v1/memories/{memory_id}", "get">;
/** A list of notes, or of messages. */
export type Items = Schemas["Memories_Item_"];
/** The hits of a search, best first. */
export type Hits = Schemas["Memories_Hit_"];
/** A note or a message that answers a question. */
export type Hit = Hits["results"][number];

/** A page of a list; `next_cursor` is there as long as there is more. */
export interface Page<T> {
  items: T[];
  next_cursor?: string | null;
}

/** What was said: a text, a message, or several; also as the APIs of models have them. */
export type Messages = Schemas["AddRequest"]["messages"];

export type AddOptions = Omit<Schemas["AddRequest"], "messages" | Alias>;
export type SearchOptions = Omit<Schemas["SearchRequest"], "query" | Alias>;
export type RecallOptions = Omit<Schemas["RecallRequest"], "question" | Alias>;
export type ExtractOptions = Omit<Schemas["ExtractRequest"], Alias>;
export type ForgetOptions = Schemas["ForgetRequest"];
export type ListOptions = Omit<Query<"/v1/memories", "get">, Alias>;
export type DeleteAllOptions = Omit<Query<"/v1/memories", "delete">, Alias>;
/** Whose memory an id means: one of the ids is required. */
export type Owner = Omit<Query<"/v1/memories/{memory_id}", "get">, Alias>;
export type UpdateOptions = Owner & Schemas["UpdateRequest"];
export type DeleteOptions = Omit<Query<"/v1/memories/{memory_id}", "delete">, Alias>;
export type ChangesOptions = Query<"/v1/memories/forgotten", "get">;
export type GraphOptions = Omit<Query<"/v1/graph", "get">, Alias>;

type OfUser = { user_id: string };
export type ProfileOptions = OfUser & Query<"/v1/users/{user_id}/profile", "get">;
export type MessagesOptions = OfUser & Query<"/v1/users/{user_id}/messages", "get">;
export type NeighborsOptions = OfUser &
  Query<"/v1/users/{user_id}/messages/{message_id}/neighbors", "get">;
export type LexicalOptions = Omit<Schemas["LexicalSearch"], "query_text">;
export type SemanticOptions = Schemas["SemanticSearch"];
export type HybridOptions = Omit<Schemas["HybridSearch"], "query_text">;

export type SessionsOptions = Query<"/v1/sessions", "get">;
export type ContextOptions = Query<"/v1/sessions/{session_id}/context", "get">;
export type SessionOptions = Schemas["SessionRequest"];
export type RestoreOptions = Schemas["RestoreRequest"];

export type ChatOptions = Omit<Schemas["ChatRequest"], "message">;
export type GroupOptions = Omit<Body<"/v1/groups/{group_id}/turns", "post">, "message">;

export type ImportOptions = Query<"/v1/import", "post">;
export type PageOptions = Query<"/v1/agents", "get">;
export type UsersOptions = Query<"/v1/users", "get">;

/** The recall that a turn begins with, or why there is none. */
export interface RecallEvent {
  type: "recall";
  query: string;
  events: RecalledMemory[];
  seconds: number;
  problem: string;
}

/** A piece of the reply. */
export interface TextEvent {
  type: "text";
  delta: string;
}

/** The model calls a tool; `arguments` is JSON as the model wrote it. */
export interface ToolCallEvent {
  type: "tool_call";
  call_id: string;
  name: string;
  arguments: string;
}

export interface ToolResultEvent {
  type: "tool_result";
  call_id: string;
  name: string;
  result: string;
}

/** The end of a turn, with the whole reply. */
export interface DoneEvent {
  type: "done";
  text: string;
  message_id: string;
  /** Calls that the model wrote into its text, which nobody saw. */
  leaks: number;
}

/** An event of a turn; a turn that fails ends with an exception instead of `done`. */
export type ChatEvent = RecallEvent | TextEvent | ToolCallEvent | ToolResultEvent | DoneEvent;

/** The model of one member failed; the others go on. */
export interface MemberErrorEvent {
  type: "error";
  error: Reason;
}

/** An event of a group, with the member that it concerns; the last `done` concerns all. */
export type GroupEvent = (ChatEvent | MemberErrorEvent) & { member_id?: string };

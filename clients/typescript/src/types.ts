/** The records of the server under the names that they have in Python. */

import type { Reason } from "./errors.js";
import type { Answer, Body, Query } from "./routes.js";
import type * as schema from "./schema.js";

/** Each of these fields has another name, which is the one to use. */
type Alias = "run_id" | "top_k";

export type {
  Added,
  Change,
  ChatReply,
  Checkpoint,
  Context,
  Deletion,
  Entry,
  Evidence,
  Feedback,
  GroupMember,
  HybridHit,
  ImportState,
  Ingested,
  Inventory,
  Job,
  LexicalHits,
  MemberReply,
  Message,
  Profile,
  Recalled,
  RecalledMemory,
  Receipt,
  Relation,
  SemanticHit,
  Step,
} from "./schema.js";

/** A note or a message. */
export type Item = Answer<"GET /v1/memories/{memory_id}">;
/** A list of notes, or of messages. */
export type Items = schema.Memories_Item_;
/** The hits of a search, best first. */
export type Hits = schema.Memories_Hit_;
/** A note or a message that answers a question. */
export type Hit = Hits["results"][number];

/** A page of a list; `next_cursor` is there as long as there is more. */
export interface Page<T> {
  items: T[];
  next_cursor?: string | null;
}

/** What was said: a text, a message, or several; also as the APIs of models have them. */
export type Messages = schema.AddRequest["messages"];

export type AddOptions = Omit<schema.AddRequest, "messages" | Alias>;
export type SearchOptions = Omit<schema.SearchRequest, "query" | Alias>;
export type FeedbackOptions = Omit<schema.FeedbackRequest, "memory_id" | "vote">;
export type RecallOptions = Omit<schema.RecallRequest, "question" | Alias>;
export type ExtractOptions = Omit<schema.ExtractRequest, Alias>;
export type ForgetOptions = schema.ForgetRequest;
export type ListOptions = Omit<Query<"GET /v1/memories">, Alias>;
export type DeleteAllOptions = Omit<Query<"DELETE /v1/memories">, Alias>;
/** Whose memory an id means: one of the ids is required. */
export type Owner = Omit<Query<"GET /v1/memories/{memory_id}">, Alias>;
export type UpdateOptions = Owner & schema.UpdateRequest;
export type DeleteOptions = Omit<Query<"DELETE /v1/memories/{memory_id}">, Alias>;
export type ChangesOptions = Query<"GET /v1/memories/forgotten">;
export type EndedOptions = Query<"GET /v1/memories/ended">;
export type ReopenOptions = Query<"POST /v1/memories/{memory_id}/reopen">;
export type GraphOptions = Omit<Query<"GET /v1/graph">, Alias>;

type OfUser = { user_id: string };
export type ProfileOptions = OfUser & Query<"GET /v1/users/{user_id}/profile">;
export type MessagesOptions = OfUser & Query<"GET /v1/users/{user_id}/messages">;
export type NeighborsOptions = OfUser &
  Query<"GET /v1/users/{user_id}/messages/{message_id}/neighbors">;
export type LexicalOptions = Omit<schema.LexicalSearch, "query_text">;
export type SemanticOptions = schema.SemanticSearch;
export type HybridOptions = Omit<schema.HybridSearch, "query_text">;

export type SessionsOptions = Query<"GET /v1/sessions">;
export type ContextOptions = Query<"GET /v1/sessions/{session_id}/context">;
export type SessionOptions = schema.SessionRequest;
export type RestoreOptions = schema.RestoreRequest;

export type ChatOptions = Omit<schema.ChatRequest, "message">;
export type GroupOptions = Omit<Body<"POST /v1/groups/{group_id}/turns">, "message">;

export type ImportOptions = Query<"POST /v1/import">;
/** What is to change; `user_id` and `agent_id` say whose session it is. */
export type ConfigureOptions = schema.ConfigureSessionRequest;
export type PageOptions = Query<"GET /v1/agents">;
export type UsersOptions = Query<"GET /v1/users">;

/** The recall that a turn begins with, or why there is none. */
export interface RecallEvent {
  type: "recall";
  query: string;
  events: schema.RecalledMemory[];
  seconds: number;
  problem: string;
  /** Nothing certain is known: the events are only possibly related. */
  uncertain: boolean;
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

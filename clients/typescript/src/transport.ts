/** Requests and answers over HTTP: credentials, time limits, safe retries, typed errors. */

import { Deadline } from "./deadline.js";
import { ConnectionFailed, errorOfAnswer, invalidArgument, KeMemError } from "./errors.js";
import { serverEvents, type ServerEvent } from "./events.js";
import type { Answer, Body, IdsIn, Query, Route } from "./routes.js";

/** How to reach a server. */
export interface ClientOptions {
  /** Of the server; `http://127.0.0.1:8420` unless given. */
  baseUrl?: string | undefined;
  /** The server's API key, or a token that is bound to one user. */
  apiKey?: string | undefined;
  /** Milliseconds for a call with its retries; for a stream, of silence. 60,000 unless given. */
  timeout?: number | undefined;
  /** How often a call that may be repeated is tried again: 2 unless given. */
  maxRetries?: number | undefined;
  /** In place of the `fetch` of the platform. */
  fetch?: typeof fetch | undefined;
}

/** What a single call may have of its own. */
export interface RequestOptions {
  /** Ends the call, which rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Milliseconds, in place of those of the client. */
  timeout?: number | undefined;
  /**
   * Of your choice, for a write: sent again with the same key it is not done twice, and so it is
   * retried as a read is.
   */
  idempotencyKey?: string | undefined;
}

/** What a request consists of besides its route: the ids in its path, its query, its body. */
interface Parts<R extends Route> {
  path?: Record<IdsIn<R>, string>;
  query?: Query<R>;
  body?: Body<R>;
}

interface Outgoing {
  method: string;
  url: string;
  headers: Record<string, string>;
  body?: BodyInit;
}

const KEY = "idempotency-key";
const ACCEPT_EVENTS = "text/event-stream";
const UNREACHED = new Set([502, 503, 504]);
const FIRST_PAUSE = 200; // milliseconds; each further one is twice as long

export class Transport {
  readonly #baseUrl: string;
  readonly #headers: Record<string, string>;
  readonly #timeout: number;
  readonly #maxRetries: number;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions) {
    const baseUrl = options.baseUrl ?? "http://127.0.0.1:8420";
    if (!/^https?:\/\/[^/]/.test(baseUrl)) {
      throw invalidArgument("baseUrl", `baseUrl must begin with http:// or https://: ${baseUrl}`);
    }
    this.#baseUrl = baseUrl.replace(/\/+$/, "");
    this.#headers = options.apiKey ? { authorization: `Bearer ${asBytes(options.apiKey)}` } : {};
    this.#timeout = options.timeout ?? 60_000;
    this.#maxRetries = options.maxRetries ?? 2;
    this.#fetch = options.fetch ?? ((url, init) => fetch(url, init));
  }

  /** The answer to a request. */
  async call<R extends Route>(
    route: R,
    parts: Parts<R> = {},
    options: RequestOptions = {},
  ): Promise<Answer<R>> {
    return this.#answer(this.#outgoing(route, parts, options), options);
  }

  /** The answer to a request whose body is a file. */
  async upload<R extends Route>(
    route: R,
    query: Query<R>,
    file: Blob | Uint8Array | string,
    options: RequestOptions = {},
  ): Promise<Answer<R>> {
    const outgoing = this.#outgoing(route, { query }, options);
    outgoing.headers["content-type"] = "application/octet-stream";
    return this.#answer({ ...outgoing, body: file as BodyInit }, options);
  }

  /** The events that answer a request, as they come; whoever stops reading hangs up. */
  async *events<R extends Route>(
    route: R,
    parts: Parts<R>,
    options: RequestOptions = {},
  ): AsyncGenerator<ServerEvent, void, undefined> {
    const outgoing = this.#outgoing(route, parts, options);
    outgoing.headers["accept"] = ACCEPT_EVENTS;
    const deadline = this.#deadline(options);
    try {
      const { body } = await this.#opened(outgoing, deadline);
      if (body) yield* serverEvents(body, () => deadline.restart());
    } catch (error) {
      throw told(error, deadline);
    } finally {
      deadline.stop();
    }
  }

  async #answer<T>(outgoing: Outgoing, options: RequestOptions): Promise<T> {
    const deadline = this.#deadline(options);
    try {
      const response = await this.#opened(outgoing, deadline);
      return parsedAnswer(await response.text(), outgoing.url);
    } catch (error) {
      throw told(error, deadline);
    } finally {
      deadline.stop();
    }
  }

  #deadline(options: RequestOptions): Deadline {
    return new Deadline(options.timeout ?? this.#timeout, options.signal);
  }

  #outgoing<R extends Route>(
    route: R,
    parts: Parts<R>,
    { idempotencyKey }: RequestOptions,
  ): Outgoing {
    const { path = {}, query = {}, body } = parts;
    const [method = "", template = ""] = route.split(" ");
    const url = this.#baseUrl + filled(template, path) + queryString(query);
    const outgoing: Outgoing = { method, url, headers: { ...this.#headers } };
    if (idempotencyKey !== undefined) outgoing.headers[KEY] = asBytes(idempotencyKey);
    if (body !== undefined) {
      outgoing.headers["content-type"] = "application/json";
      outgoing.body = JSON.stringify(body);
    }
    return outgoing;
  }

  /** The first answer with success; a failure is tried again where that is safe. */
  async #opened(outgoing: Outgoing, deadline: Deadline): Promise<Response> {
    for (let attempt = 0; ; attempt++) {
      const [response, error] = await this.#attempt(outgoing, deadline);
      if (!error) return response;
      const pause = pauseBefore(outgoing, error, response?.headers, attempt);
      if (attempt >= this.#maxRetries || pause === undefined || !deadline.allows(pause)) {
        throw error;
      }
      await deadline.pause(pause);
    }
  }

  async #attempt(
    { url, ...init }: Outgoing,
    deadline: Deadline,
  ): Promise<[Response, undefined] | [Response | undefined, KeMemError]> {
    // To follow a redirect would turn POST into GET, and lose the body.
    const request: RequestInit = { ...init, redirect: "error", signal: deadline.signal };
    try {
      const response = await this.#fetch(url, request);
      if (response.ok) return [response, undefined];
      return [response, errorOfAnswer(response.status, await response.text())];
    } catch (error) {
      if (deadline.signal.aborted) throw error;
      return [undefined, told(error, deadline)];
    }
  }
}

/** A text as a header can carry it: each character is a byte of its UTF-8. */
function asBytes(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text));
}

/** A path with its ids in their places. */
function filled(template: string, ids: Record<string, string>): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const id: unknown = ids[name];
    // A URL swallows dots, and would then lead to another route.
    if (typeof id !== "string" || ["", ".", ".."].includes(id)) {
      throw invalidArgument(name, `${name} must be an id, not ${JSON.stringify(id)}`);
    }
    return encodeURIComponent(id);
  });
}

/** A query string: lists are repeated, objects are JSON, and what is missing is left out. */
function queryString(query: object): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each === undefined || each === null) continue;
      search.append(name, typeof each === "object" ? JSON.stringify(each) : String(each));
    }
  }
  const text = search.toString();
  return text && `?${text}`;
}

/** Milliseconds until a failed request may be sent again; undefined where that is not safe. */
function pauseBefore(
  outgoing: Outgoing,
  error: KeMemError,
  headers: Headers | undefined,
  attempt: number,
): number | undefined {
  const asked = retryAfter(headers?.get("retry-after"));
  if (error.status === 429) return asked; // refused before anything was done
  const isKeyed = KEY in outgoing.headers;
  if (error.status === 409 && isKeyed) return asked; // the first attempt is still in progress
  const unreached = error instanceof ConnectionFailed || UNREACHED.has(error.status ?? 0);
  const isSafe = outgoing.method === "GET" || isKeyed;
  return isSafe && unreached ? (asked ?? FIRST_PAUSE * 2 ** attempt) : undefined;
}

/** Milliseconds of a Retry-After header, which has seconds or a date. */
function retryAfter(header: string | null | undefined): number | undefined {
  if (!header) return undefined;
  const milliseconds = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isNaN(milliseconds) ? undefined : Math.max(0, milliseconds);
}

function parsedAnswer<T>(body: string, url: string): T {
  try {
    return JSON.parse(body) as T;
  } catch {
    const message = `${url} does not answer with JSON: is it a KeMem server?`;
    throw new KeMemError({ code: "INVALID_ANSWER", message });
  }
}

/** The error for a caller: why the call was ended, or what the server or the network said. */
function told(error: unknown, deadline: Deadline): KeMemError {
  if (deadline.signal.aborted) return deadline.signal.reason as KeMemError; // or the caller's own
  if (error instanceof KeMemError) return error;
  const { message, cause } = error as Error;
  const reason = cause instanceof Error ? cause.message || cause.name : message;
  return new ConnectionFailed(`the server cannot be reached: ${reason}`, error);
}

/**
 * Every error that a call can end with.
 *
 *     KeMemError
 *     ├── InvalidArgument    400  a value is wrong; the message says what would be right
 *     ├── Unauthenticated    401  no credential, or a wrong one
 *     ├── PermissionDenied   403  a right one that does not reach this far
 *     ├── NotFound           404  does not exist for this caller; a stranger's row looks the same
 *     ├── Conflict           409  it exists already, with other content
 *     ├── Exhausted          413  larger than a limit allows
 *     ├── RateLimited        429  too many requests for now
 *     ├── Internal           500  a fault of the server
 *     ├── Unavailable        503  the store or a model cannot serve now
 *     ├── ConnectionFailed    –   the server was not reached, or the connection broke
 *     └── TimedOut            –   there was no answer in time
 *
 * A call that its own AbortSignal ended rejects with the reason of that signal instead.
 */

/** What a server says of an error. */
export interface Reason {
  code: string;
  message: string;
  details?: Record<string, unknown>;
}

/** A failure with a stable code, a message for people and details for programs. */
export class KeMemError extends Error {
  /** Such as `NOT_FOUND`; the codes are those of the HTTP API. */
  readonly code: string;
  /** The HTTP status; undefined where there was no answer. */
  readonly status: number | undefined;
  readonly details: Record<string, unknown>;

  constructor(reason: Reason, status?: number, cause?: unknown) {
    super(reason.message, cause === undefined ? undefined : { cause });
    this.name = new.target.name;
    this.code = reason.code;
    this.status = status;
    this.details = reason.details ?? {};
  }

  /** The argument that is wrong, where the server names one: `limit`, `messages[0].role`. */
  get field(): string | undefined {
    return typeof this.details.field === "string" ? this.details.field : undefined;
  }
}

export class InvalidArgument extends KeMemError {}
export class Unauthenticated extends KeMemError {}
export class PermissionDenied extends KeMemError {}
export class NotFound extends KeMemError {}
export class Conflict extends KeMemError {}
export class Exhausted extends KeMemError {}
export class RateLimited extends KeMemError {}
export class Internal extends KeMemError {}
export class Unavailable extends KeMemError {}

export class ConnectionFailed extends KeMemError {
  constructor(message: string, cause?: unknown) {
    super({ code: "CONNECTION_FAILED", message }, undefined, cause);
  }
}

export class TimedOut extends KeMemError {
  constructor(message: string) {
    super({ code: "TIMED_OUT", message });
  }
}

const KINDS = [
  ["INVALID_ARGUMENT", 400, InvalidArgument],
  ["UNAUTHENTICATED", 401, Unauthenticated],
  ["PERMISSION_DENIED", 403, PermissionDenied],
  ["NOT_FOUND", 404, NotFound],
  ["CONFLICT", 409, Conflict],
  ["RESOURCE_EXHAUSTED", 413, Exhausted],
  ["RESOURCE_EXHAUSTED", 429, RateLimited],
  ["INTERNAL", 500, Internal],
  ["UNAVAILABLE", 502, Unavailable],
  ["UNAVAILABLE", 503, Unavailable],
  ["UNAVAILABLE", 504, Unavailable],
] as const;

const EXCERPT = 200; // characters of an answer that is not the server's own

/** A value of this client's caller that no request can carry. */
export function invalidArgument(field: string, message: string): InvalidArgument {
  return new InvalidArgument({ code: "INVALID_ARGUMENT", message, details: { field } }, 400);
}

/** The error that the server describes, with the status of its answer, if it came as one. */
export function describedError(reason: Reason, status?: number): KeMemError {
  const kind =
    KINDS.find(([, each]) => each === status) ?? KINDS.find(([code]) => code === reason.code);
  return new (kind?.[2] ?? KeMemError)(reason, status ?? kind?.[1]);
}

/** The error that an answer without success stands for; a proxy may have sent it. */
export function errorOfAnswer(status: number, body: string): KeMemError {
  const reason = reasonIn(body);
  if (reason) return describedError(reason, status);
  const code = KINDS.find(([, each]) => each === status)?.[0] ?? "UNKNOWN";
  const message = `the answer has the status ${status}: ${body.slice(0, EXCERPT) || "(empty)"}`;
  return describedError({ code, message }, status);
}

function reasonIn(body: string): Reason | undefined {
  try {
    const { error } = JSON.parse(body) as { error?: Partial<Reason> };
    const { code, message } = error ?? {};
    return typeof code === "string" && typeof message === "string" ? (error as Reason) : undefined;
  } catch {
    return undefined;
  }
}

export { KeMem, type RecallRequestOptions } from "./client.js";
export {
  Conflict,
  ConnectionFailed,
  Exhausted,
  Internal,
  InvalidArgument,
  KeMemError,
  NotFound,
  PermissionDenied,
  RateLimited,
  TimedOut,
  Unauthenticated,
  Unavailable,
  type Reason,
} from "./errors.js";
export type { ClientOptions, RequestOptions } from "./transport.js";
export type * from "./types.js";

/** The routes of the server as types: what each takes and answers, read from its description. */

import type { paths } from "./schema.js";

export type Route = keyof paths;

/** The methods of a route. */
export type Method<R extends Route> = {
  [M in keyof paths[R]]: paths[R][M] extends { responses: unknown } ? M : never;
}[keyof paths[R]] &
  string;

/** The names in braces.  "/v1/memories/{memory_id}" -> "memory_id" */
export type IdsIn<R extends string> = R extends `${string}{${infer Name}}${infer Rest}`
  ? Name | IdsIn<Rest>
  : never;

/** The JSON that a request carries. */
export type Body<R extends Route, M extends Method<R>> = paths[R][M] extends {
  requestBody: { content: { "application/json": infer B } };
}
  ? B
  : never;

/** The parameters of a URL; `filters` is an object, which travels as JSON. */
export type Query<R extends Route, M extends Method<R>> = paths[R][M] extends {
  parameters: { query?: infer Q };
}
  ? WithFilters<NonNullable<Q>>
  : never;

type WithFilters<Q> = "filters" extends keyof Q
  ? Omit<Q, "filters"> & { filters?: Record<string, unknown> | null }
  : Q;

/** The JSON of a successful answer. */
export type Answer<R extends Route, M extends Method<R>> = paths[R][M] extends {
  responses: { 200: { content: { "application/json": infer A } } };
}
  ? A
  : never;

/** The routes of the server: what each takes and answers, as its description says. */

import type { Routes } from "./schema.js";

/** A method and a path: "GET /v1/memories/{memory_id}". */
export type Route = keyof Routes;

/** The names in braces.  "GET /v1/memories/{memory_id}" -> "memory_id" */
export type IdsIn<R extends string> = R extends `${string}{${infer Name}}${infer Rest}`
  ? Name | IdsIn<Rest>
  : never;

export type Query<R extends Route> = Routes[R] extends { query: infer Q extends object } ? Q : never;
export type Body<R extends Route> = Routes[R] extends { body: infer B } ? B : never;
export type Answer<R extends Route> = Routes[R] extends { answer: infer A } ? A : never;

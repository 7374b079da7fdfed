/** The servers of the tests: real ones, which pytest starts, and ones that misbehave. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after } from "node:test";
import { KeMem, type ClientOptions } from "kemem";

/** A variable that tests/test_typescript_client.py sets. */
function given(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is missing: run pytest tests/test_typescript_client.py`);
  return value;
}

export const BASE_URL = given("KEMEM_TEST_URL");
export const API_KEY = given("KEMEM_TEST_KEY");
/** Bound to the user "ann". */
export const TOKEN = given("KEMEM_TEST_TOKEN");
/** Of a server that has a model. */
export const CHAT_URL = given("KEMEM_TEST_CHAT_URL");

/** A client of the real server. */
export function connected(options: ClientOptions = {}): KeMem {
  return new KeMem({ baseUrl: BASE_URL, apiKey: API_KEY, ...options });
}

type Answer = (response: ServerResponse, request: IncomingMessage) => void;

/** The address of a server that gives these answers one after the other, and what it was asked. */
export async function scripted(...answers: Answer[]): Promise<{ url: string; asked: string[] }> {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(`${request.method} ${request.url}`);
    request.resume();
    answers.shift()?.(response, request);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

/** An answer with a status, a body and headers. */
export function answer(status: number, body: unknown, headers: Record<string, string> = {}): Answer {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return (response) => void response.writeHead(status, headers).end(text);
}

/** An address where nobody listens. */
export async function deadUrl(): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return `http://127.0.0.1:${port}`;
}

/** What a check finds, which is asked again in small steps until it finds something. */
export async function until<T>(check: () => Promise<T | undefined>): Promise<T> {
  for (const deadline = Date.now() + 60_000; ; ) {
    const found = await check();
    if (found !== undefined) return found;
    if (Date.now() > deadline) throw new Error("it did not happen in time");
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Server-sent events, as the server streams them. */

/** An event: its name, and the JSON that it carries. */
export interface ServerEvent {
  name: string;
  data: unknown;
}

/** The events of a body in their order; `onBytes` hears of everything that arrives. */
export async function* serverEvents(
  body: ReadableStream<Uint8Array>,
  onBytes: () => void,
): AsyncGenerator<ServerEvent, void, undefined> {
  let name = "";
  let data: string[] = [];
  for await (const line of lines(body, onBytes)) {
    if (line === "") {
      if (data.length) yield { name, data: JSON.parse(data.join("\n")) };
      [name, data] = ["", []];
    }
    const [field, value] = parsed(line);
    if (field === "event") name = value;
    if (field === "data") data.push(value);
  }
}

/** A line as field and value.  "data: {}" -> ["data", "{}"]; a comment has no field. */
function parsed(line: string): [string, string] {
  const colon = line.indexOf(":");
  return colon < 0 ? [line, ""] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, "")];
}

/** The complete lines of a body in UTF-8; a character may arrive in two pieces. */
async function* lines(body: ReadableStream<Uint8Array>, onBytes: () => void) {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    onBytes();
    const complete = (rest + decoder.decode(value, { stream: true })).split(/\r?\n/);
    rest = complete.pop() ?? "";
    yield* complete;
  }
}

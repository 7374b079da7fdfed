/**
 * Memory for Vercel's AI SDK: tools by which a model keeps and finds memories, and a middleware
 * that does it for every model call. Both are bound to one user by the application: no argument
 * of a model leads to another user's memories.
 */

import { tool, type LanguageModelMiddleware } from "ai";
import { z } from "zod";
import { TEXTS, type Language } from "./ai-texts.js";
import type { KeMem } from "./client.js";

/** Whose memories a model reaches. */
export interface MemoryUser {
  user_id: string;
  agent_id?: string;
  /** The conversation, to which new memories belong. */
  session_id?: string;
}

export interface ToolOptions extends MemoryUser {
  /** Of the descriptions that the model reads; English unless given. */
  language?: Language;
}

export interface MiddlewareOptions extends MemoryUser {
  /** Hears why a recall or a store failed; the reply goes on. Warns on the console unless given. */
  onError?: (error: unknown) => void;
}

const MIN_SCORE = 0.5; // below it, a hit more likely misleads than helps
const HAN = /\p{Script=Han}/u;

type Wrap = NonNullable<LanguageModelMiddleware["wrapGenerate"]>;
type CallOptions = Parameters<Wrap>[0]["params"];

/**
 * Tools by which a model keeps, finds and forgets memories of one user.
 *
 *     const tools = memoryTools(memory, { user_id: "ann", session_id: "trip" });
 *     await generateText({ model, tools, stopWhen: stepCountIs(5), prompt });
 */
export function memoryTools(memory: KeMem, { language = "en", ...user }: ToolOptions) {
  const texts = TEXTS[language];
  const { session_id, ...owner } = user; // a search looks through all conversations
  return {
    add_memory: tool({
      description: texts.addMemory,
      inputSchema: z.object({ content: z.string().min(1).describe(texts.content) }),
      execute: async ({ content }, { abortSignal }) => {
        const { results } = await memory.add(content, { ...user, infer: false }, { signal: abortSignal });
        return { memories: results.map(({ id, ...rest }) => ({ memory_key: id, ...rest })) };
      },
    }),
    search_memories: tool({
      description: texts.searchMemories,
      inputSchema: z.object({
        query: z.string().min(1).describe(texts.query),
        limit: z.number().int().min(1).max(10).default(5).describe(texts.limit),
      }),
      execute: async ({ query, limit }, { abortSignal }) => {
        const options = { ...owner, limit, threshold: MIN_SCORE };
        const { results } = await memory.search(query, options, { signal: abortSignal });
        return {
          memories: results.map((hit) => ({
            memory_key: hit.id,
            content: hit.memory,
            score: hit.score,
            event_time: hit.event_time,
            ...(hit.valid_until && { valid_until: hit.valid_until }),
          })),
        };
      },
    }),
    recall_memories: tool({
      description: texts.recallMemories,
      inputSchema: z.object({
        question: z.string().min(1).describe(texts.question),
        past: z.boolean().default(false).describe(texts.past),
      }),
      execute: async ({ question, past }, { abortSignal }) => {
        const recalled = await memory.recall(question, { ...user, past }, { signal: abortSignal });
        const { text, search_summary, confidence, completed } = recalled;
        return { text, search_summary, confidence, completed };
      },
    }),
    forget_memory: tool({
      description: texts.forgetMemory,
      inputSchema: z.object({ memory_key: z.string().min(1).describe(texts.memoryKey) }),
      execute: async ({ memory_key }, { abortSignal }) => {
        const { withdrawn } = await memory.delete(memory_key, owner, { signal: abortSignal });
        return { forgotten: memory_key, withdrawn };
      },
    }),
  };
}

/**
 * A middleware that shows a model what the user's message needs to know, and then stores the
 * message and the reply.
 *
 *     const model = wrapLanguageModel({
 *       model: openai("gpt-5"),
 *       middleware: memoryMiddleware(memory, { user_id: "ann", session_id: "trip" }),
 *     });
 *
 * A call of tools is no reply: it is stored when the model has answered. A memory that fails does
 * not keep the model from replying.
 */
export function memoryMiddleware(
  memory: KeMem,
  { onError = (error) => console.warn("kemem:", error), ...user }: MiddlewareOptions,
): LanguageModelMiddleware {
  async function recalled(params: CallOptions): Promise<CallOptions> {
    const message = lastMessage(params.prompt);
    if (!message) return params;
    try {
      const signal = params.abortSignal;
      const { evidence, text } = await memory.recall(message, user, { signal });
      return evidence.length ? withMemories(params, `${headingFor(message)}\n${text}`) : params;
    } catch (error) {
      onError(error);
      return params;
    }
  }

  async function remember(params: CallOptions, reply: string, finish: string): Promise<void> {
    const message = lastMessage(params.prompt);
    if (!message || !reply || finish === "tool-calls" || finish === "error") return;
    const messages = [
      { role: "user", content: message },
      { role: "assistant", content: reply },
    ];
    try {
      await memory.add(messages, user);
    } catch (error) {
      onError(error);
    }
  }

  return {
    specificationVersion: "v3",
    wrapGenerate: async ({ params, model }) => {
      const result = await model.doGenerate(await recalled(params));
      const reply = result.content.map((part) => (part.type === "text" ? part.text : "")).join("");
      await remember(params, reply, result.finishReason.unified);
      return result;
    },
    wrapStream: async ({ params, model }) => {
      const result = await model.doStream(await recalled(params));
      let reply = "";
      let finish = "error"; // until the model says how it finished
      const listen = new TransformStream<Part, Part>({
        transform(part, controller) {
          if (part.type === "text-delta") reply += part.delta;
          if (part.type === "finish") finish = part.finishReason.unified;
          controller.enqueue(part);
        },
        flush: () => remember(params, reply, finish),
      });
      return { ...result, stream: result.stream.pipeThrough(listen) };
    },
  };
}

type WrapStream = NonNullable<LanguageModelMiddleware["wrapStream"]>;
type Streamed = Awaited<ReturnType<WrapStream>>["stream"];
type Part = Streamed extends ReadableStream<infer P> ? P : never;

/** The words of the user's last message; empty if it has none. */
function lastMessage(prompt: CallOptions["prompt"]): string {
  const message = prompt.filter((each) => each.role === "user").at(-1);
  const texts = message?.content.map((part) => (part.type === "text" ? part.text : ""));
  return texts?.filter(Boolean).join("\n") ?? "";
}

/** A call whose last message of the user begins with memories: data, hence no system message. */
function withMemories(params: CallOptions, text: string): CallOptions {
  const prompt = [...params.prompt];
  const at = prompt.map((each) => each.role).lastIndexOf("user");
  const message = prompt[at];
  if (message?.role === "user") {
    prompt[at] = { ...message, content: [{ type: "text", text }, ...message.content] };
  }
  return { ...params, prompt };
}

function headingFor(message: string): string {
  return TEXTS[HAN.test(message) ? "zh" : "en"].memories;
}

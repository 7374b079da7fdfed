import { TimedOut } from "./errors.js";

/** What ends a call early: its time is up, or its caller aborts it. */
export class Deadline {
  readonly #controller = new AbortController();
  readonly #milliseconds: number;
  readonly #callers: AbortSignal | undefined;
  readonly #pass = () => this.#controller.abort(this.#callers?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #end = 0;

  constructor(milliseconds: number, callers: AbortSignal | undefined) {
    this.#milliseconds = milliseconds;
    this.#callers = callers;
    callers?.addEventListener("abort", this.#pass);
    if (callers?.aborted) this.#pass();
    this.restart();
  }

  /** For `fetch`, which it ends. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Begin again, as a stream does with everything that arrives. */
  restart(): void {
    clearTimeout(this.#timer);
    this.#end = Date.now() + this.#milliseconds;
    const error = new TimedOut(`the server did not answer within ${this.#milliseconds} ms`);
    this.#timer = setTimeout(() => this.#controller.abort(error), this.#milliseconds);
  }

  /** Whether a pause would end in time. */
  allows(milliseconds: number): boolean {
    return Date.now() + milliseconds < this.#end;
  }

  /** Wait, unless the call ends meanwhile. */
  async pause(milliseconds: number): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(resolve, milliseconds);
      this.signal.addEventListener("abort", () => {
        clearTimeout(timer);
        reject(this.signal.reason);
      });
    });
  }

  /** End the call: no timer stays, and a connection that is still open is closed. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#callers?.removeEventListener("abort", this.#pass);
    this.#controller.abort();
  }
}

// Asks the service. Its refusals say what was found, expected and to do: they are shown as such.

import { stored } from "./dom.js";

const PATIENCE = 4; // times to come again when the service says that it is full
const KEPT = 40; // answers kept, so that going back costs nothing
const TOKEN = "elmo-token";

const answers = new Map();
let token = stored("session", TOKEN);

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Return the answer to a POST of `body`, or to a GET if there is none. */
export async function ask(path, body, signal) {
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const key = `${path} ${sent}`;
  if (answers.has(key)) return answers.get(key);
  const answer = await patiently(path, sent, signal);
  answers.set(key, answer);
  if (answers.size > KEPT) answers.delete(answers.keys().next().value);
  return answer;
}

/** Cut a sentence into tokens, as the service does. */
export async function tokensOf(text, model, signal) {
  const body = { sentences: [text], layer: 0, pooling: "mean", model };
  return (await ask("v1/embed", body, signal)).sentences[0].tokens;
}

export function useToken(given) {
  token = given;
  stored("session", TOKEN, given);
}

async function patiently(path, sent, signal) {
  for (let turn = 0; ; turn++) {
    const response = await send(path, sent, signal);
    const answer = await response.json().catch(() => null);
    if (response.ok && answer !== null) return answer;
    const seconds = Number(response.headers.get("Retry-After"));
    if ((response.status === 429 || response.status === 503) && turn < PATIENCE) {
      await pause(Math.min(Math.max(seconds || 1, 0.5), 10), signal);
      continue;
    }
    if (response.status === 401) document.dispatchEvent(new Event("token-wanted"));
    const told = answer?.error?.message;
    throw new Refusal(response.status, told ?? `The service answered ${response.status}.`);
  }
}

async function send(path, body, signal) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const method = body === undefined ? "GET" : "POST";
  try {
    return await fetch(path, { method, headers, body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The service does not answer. Is `elmo serve` still running?");
  }
}

/** Wait; what ends the question ends the waiting too. */
export function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("superseded", "AbortError"));
    });
  });
}

/** Runs one question at a time: a new one ends the one before. */
export class Asker {
  /** `result` is what is drawn into, `notice` where help is shown. */
  constructor(result, notice) {
    this.result = result;
    this.notice = notice;
    this.key = null;
    this.running = null;
  }

  /** Draw what `work(signal)` answers, unless it is what is there already. */
  async run(key, work, draw) {
    if (key === this.key) {
      if (this.answer !== undefined) draw(this.answer);
      return;
    }
    this.stop();
    this.key = key;
    const own = (this.running = new AbortController());
    this.result.setAttribute("aria-busy", "true");
    try {
      const answer = await work(own.signal);
      if (own.signal.aborted) return;
      this.answer = answer;
      this.tell(null);
      draw(answer);
      this.result.classList.add("drawn");
    } catch (error) {
      if (own.signal.aborted) return;
      this.key = null;
      this.tell(error instanceof Refusal ? error.message : `This page failed: ${error.message}`);
      if (!(error instanceof Refusal)) throw error;
    } finally {
      if (this.running === own) {
        this.running = null;
        this.result.setAttribute("aria-busy", "false");
      }
    }
  }

  /** Show help instead of a result; null takes it away. */
  tell(message) {
    this.notice.textContent = message ?? "";
    this.notice.hidden = !message;
    this.result.classList.toggle("stale", Boolean(message));
  }

  /** Ask nothing, and say why. */
  rest(message) {
    this.stop();
    this.result.setAttribute("aria-busy", "false");
    this.tell(message);
  }

  stop() {
    this.running?.abort();
    this.running = null;
    this.key = null;
    this.answer = undefined;
  }
}

// Requests to the service. Error messages of the service are shown to the user.

import { stored } from "./dom.js";

const MAX_RETRIES = 4; // if the service is overloaded or loading
const MAX_CACHED = 40; // cached responses, for going back
const TOKEN = "elmo-token";

const cache = new Map();
let token = stored("session", TOKEN);

export class ServiceError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Return the response to a POST of `body`, or to a GET without body. */
export async function ask(path, body, signal) {
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const key = `${path} ${sent}`;
  if (cache.has(key)) return cache.get(key);
  const answer = await requestWithRetry(path, sent, signal);
  cache.set(key, answer);
  if (cache.size > MAX_CACHED) cache.delete(cache.keys().next().value);
  return answer;
}

/** Tokenize a sentence with the service. */
export async function tokensOf(text, model, signal) {
  const body = { sentences: [text], layer: 0, pooling: "mean", model };
  return (await ask("v1/embed", body, signal)).sentences[0].tokens;
}

export function useToken(given) {
  token = given;
  stored("session", TOKEN, given);
}

async function requestWithRetry(path, sent, signal) {
  for (let attempt = 0; ; attempt++) {
    const response = await send(path, sent, signal);
    const answer = await response.json().catch(() => null);
    if (response.ok && answer !== null) return answer;
    const seconds = Number(response.headers.get("Retry-After"));
    if ((response.status === 429 || response.status === 503) && attempt < MAX_RETRIES) {
      await pause(Math.min(Math.max(seconds || 1, 0.5), 10), signal);
      continue;
    }
    if (response.status === 401) document.dispatchEvent(new Event("token-wanted"));
    const message = answer?.error?.message;
    throw new ServiceError(response.status, message ?? `Unexpected status ${response.status}.`);
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
    throw new ServiceError(
      0,
      "The service is not responding. Check that `elmo serve` is still running.",
    );
  }
}

/** Wait; aborting the request also ends the wait. */
export function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("superseded", "AbortError"));
    });
  });
}

/** Runs one request at a time: a new one aborts the previous one. */
export class RequestRunner {
  /** `result` is the element for results, `notice` the one for messages. */
  constructor(result, notice) {
    this.result = result;
    this.notice = notice;
    this.key = null;
    this.running = null;
  }

  /** Draw the result of `work(signal)`, reusing the current one if the key is unchanged. */
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
      this.notify(null);
      draw(answer);
      this.result.classList.add("drawn");
    } catch (error) {
      if (own.signal.aborted) return;
      this.key = null;
      const known = error instanceof ServiceError;
      this.notify(known ? error.message : `Error in this page: ${error.message}`);
      if (!(error instanceof ServiceError)) throw error;
    } finally {
      if (this.running === own) {
        this.running = null;
        this.result.setAttribute("aria-busy", "false");
      }
    }
  }

  /** Show a message instead of a result; null hides it. */
  notify(message) {
    this.notice.textContent = message ?? "";
    this.notice.hidden = !message;
    this.result.classList.toggle("stale", Boolean(message));
  }

  /** Cancel the current request and show a message. */
  cancel(message) {
    this.stop();
    this.result.setAttribute("aria-busy", "false");
    this.notify(message);
  }

  stop() {
    this.running?.abort();
    this.running = null;
    this.key = null;
    this.answer = undefined;
  }
}

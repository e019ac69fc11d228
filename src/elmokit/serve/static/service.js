// Requests to the service. Error messages of the service are shown to the user.

import { browserStorage } from "./dom.js";

const MAX_RETRIES = 4; // if the service is overloaded or loading
const MAX_CACHED = 40; // cached responses, for going back in the history
const TOKEN = "elmo-token";

const cache = new Map();
let token = browserStorage("session", TOKEN);

export class ServiceError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Return the JSON response to a POST request with `body`, or to a GET request without a body. */
export async function request(path, body, signal) {
  const json = body === undefined ? undefined : JSON.stringify(body);
  const key = `${path} ${json}`;
  if (cache.has(key)) return cache.get(key);
  const data = await requestWithRetry(path, json, signal);
  cache.set(key, data);
  if (cache.size > MAX_CACHED) cache.delete(cache.keys().next().value);
  return data;
}

/** Tokenize a sentence with the service. */
export async function tokenize(text, model, signal) {
  const body = { sentences: [text], layer: 0, pooling: "mean", model };
  return (await request("v1/embed", body, signal)).sentences[0].tokens;
}

export function setToken(value) {
  token = value;
  browserStorage("session", TOKEN, value);
}

async function requestWithRetry(path, json, signal) {
  for (let attempt = 0; ; attempt++) {
    const response = await send(path, json, signal);
    const data = await response.json().catch(() => null);
    if (response.ok && data !== null) return data;
    const seconds = Number(response.headers.get("Retry-After"));
    if ((response.status === 429 || response.status === 503) && attempt < MAX_RETRIES) {
      await pause(Math.min(Math.max(seconds || 1, 0.5), 10), signal);
      continue;
    }
    if (response.status === 401) document.dispatchEvent(new Event("token-required"));
    const message = data?.error?.message;
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

/** Wait for some seconds; aborting the request also ends the wait. */
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

  /** Draw the result of `work(signal)`. If the key is unchanged, reuse the current result. */
  async run(key, work, draw) {
    if (key === this.key) {
      if (this.data !== undefined) draw(this.data);
      return;
    }
    this.stop();
    this.key = key;
    const controller = (this.running = new AbortController());
    this.result.setAttribute("aria-busy", "true");
    try {
      const data = await work(controller.signal);
      if (controller.signal.aborted) return;
      this.data = data;
      this.notify(null);
      draw(data);
      this.result.classList.add("drawn");
    } catch (error) {
      if (controller.signal.aborted) return;
      this.key = null;
      const isServiceError = error instanceof ServiceError;
      this.notify(isServiceError ? error.message : `Error in this page: ${error.message}`);
      if (!isServiceError) throw error;
    } finally {
      if (this.running === controller) {
        this.running = null;
        this.result.setAttribute("aria-busy", "false");
      }
    }
  }

  /** Show a message instead of a result; null hides the message. */
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
    this.data = undefined;
  }
}

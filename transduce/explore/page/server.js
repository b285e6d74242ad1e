/* Sends requests to the server, and turns its errors into messages. Knows nothing of what is shown. */

const LONGEST_WAIT_S = 10;

/** The server's error message, as a sentence. */
export class ServerError extends Error {}

export async function models() {
  return (await request("v1/models")).models;
}

export function training(model, signal) {
  return request(`v1/explore/training?model=${encodeURIComponent(model)}`, { signal });
}

/** `view` is translate, attention or tree. */
export function explore(view, fields, signal) {
  const body = JSON.stringify(fields);
  return request(`v1/explore/${view}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body,
    signal,
  });
}

export function transcribe(model, recording, attention) {
  const options = { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: recording };
  return request(`v1/transcribe?model=${encodeURIComponent(model)}&attention=${attention}`, options);
}

/** Generate a text; `onpart` is called with each part of it, and the result is what is known at the end. */
export async function generate(fields, signal, onpart) {
  const headers = { "Content-Type": "application/json" };
  const body = JSON.stringify({ ...fields, stream: true });
  const response = await fetched("v1/generate", { method: "POST", headers, body, signal });
  if (!response.ok) throw await refusal(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    const events = (rest + read.value).split("\n\n");
    rest = events.pop();
    for (const [name, data] of events.map(parsed)) {
      if (name === "done") return data;
      if (name === "error") throw new ServerError(asSentence(data.error));
      onpart(data);
    }
  }
  throw new ServerError("The server stopped in the middle of the text.");
}

/** The name and the data of a server-sent event. */
function parsed(event) {
  const [, name = "", data] = /^(?:event: (\w+)\n)?data: (.*)$/.exec(event);
  return [name, JSON.parse(data)];
}

/** A file of the page itself, as text. */
export async function pageFile(name) {
  return (await fetched(`page/${name}`, {})).text();
}

async function request(address, options = {}) {
  let response = await fetched(address, options);
  if (response.status === 503 && response.headers.has("Retry-After")) {
    await pause(Math.min(LONGEST_WAIT_S, Number(response.headers.get("Retry-After")) || 1), options.signal);
    response = await fetched(address, options);
  }
  if (!response.ok) throw await refusal(response);
  return response.json().catch(() => ({}));
}

async function refusal(response) {
  const answer = await response.json().catch(() => ({}));
  return new ServerError(asSentence(answer.error ?? `the server answered with status ${response.status}`));
}

/** With a capital letter and a full stop; a line that begins with a path or a setting keeps its first letter. */
function asSentence(line) {
  const begun = line.replace(/^\p{Ll}(?=\p{L}* )/u, (letter) => letter.toUpperCase());
  return /[\p{L}\p{N})]$/u.test(begun) ? `${begun}.` : begun;
}

async function fetched(address, options) {
  try {
    return await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not respond. Is `transduce serve` still running?");
  }
}

function pause(seconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

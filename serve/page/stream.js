// The endpoint as the page sees it: what it serves, and watched answers of it.

const NO_KEY =
  "This endpoint asks for an API key. The page keeps it in the field, until you leave or reload.";
const WRONG_KEY = "The endpoint does not accept this API key.";
const CUT_OFF = "The stream ended before the answer was complete.";

export class EndpointError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function servedModel(key) {
  const response = await ask("v1/models", key);
  return (await response.json()).data[0];
}

// Calls onChoice with every choice of every chunk, in order; ends when the answer does.
export async function stream(request, key, signal, onChoice) {
  const route = "messages" in request ? "v1/chat/completions" : "v1/completions";
  const response = await ask(route, key, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...request, stream: true }),
    signal,
  });
  for await (const data of eventData(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new EndpointError(chunk.error.message);
    for (const choice of chunk.choices) onChoice(choice);
  }
  throw new EndpointError(CUT_OFF);
}

async function ask(route, key, options = {}) {
  const shown = key ? { Authorization: `Bearer ${key}` } : {};
  let response;
  try {
    response = await fetch(route, { ...options, headers: { ...options.headers, ...shown } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new EndpointError("The endpoint does not answer. Is it still running?");
  }
  if (response.ok) return response;
  if (response.status === 401) throw new EndpointError(key ? WRONG_KEY : NO_KEY, 401);
  throw new EndpointError(await reasonOf(response), response.status);
}

async function reasonOf(response) {
  const text = await response.text();
  try {
    const { error, detail } = JSON.parse(text);
    return error?.message ?? String(detail);
  } catch {
    return `The endpoint answered ${response.status} ${response.statusText}.`;
  }
}

// What browsers call a lost connection says nothing to a reader.
function broken(error) {
  throw error.name === "AbortError" ? error : new EndpointError(CUT_OFF);
}

// The data of server-sent events, one string an event.
export async function* eventData(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(broken);
    if (done) return;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  }
}

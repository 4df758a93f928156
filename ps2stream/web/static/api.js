// Requests to the map's process. An error's message is the server's.

export async function call(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Error("The map's own process does not answer.");
  }
  const text = await answer.text();
  if (!answer.ok) throw new Error(said(text) || `Refused (${answer.status}).`);
  return JSON.parse(text);
}

// Why the server does not let one read there; empty where it does, or is away.
export async function refusal(path) {
  const enough = new AbortController();
  try {
    const answer = await fetch(path, { signal: enough.signal });
    return answer.ok ? "" : said(await answer.text());
  } catch {
    return "";
  } finally {
    enough.abort();
  }
}

function said(text) {
  try {
    return JSON.parse(text).error.message;
  } catch {
    return text; // a plain refusal
  }
}

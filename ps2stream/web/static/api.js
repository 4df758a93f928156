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
  let found = {};
  try { found = JSON.parse(text); } catch { /* a plain refusal */ }
  if (!answer.ok) throw new Error(found.error?.message ?? (text || `Refused (${answer.status}).`));
  return found;
}

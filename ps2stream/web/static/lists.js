// Queries and matches as lists. Posts are strangers' text: they become text nodes, never markup.

const SHOWN = 30;
const NEWS_MS = 4000;

export function place(lon, lat) {
  const at = (v, plus, minus) => `${Math.abs(v).toFixed(2)}° ${v < 0 ? minus : plus}`;
  return `${at(lat, "N", "S")}, ${at(lon, "E", "W")}`;
}

export function words(feature) {
  return feature?.properties.expression || (feature?.geometry ? "any text" : feature?.properties.id ?? "");
}

export function mine(features, drop) {
  document.querySelector("#none").hidden = features.length > 0;
  const rows = features.map((feature) => {
    const row = document.createElement("li");
    const name = document.createElement("span");
    name.textContent = words(feature) + (feature.geometry ? "" : " (everywhere)");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Drop";
    button.setAttribute("aria-label", `Drop the query ${words(feature)}`);
    button.addEventListener("click", () => drop(feature.properties.id));
    row.append(name, button);
    return row;
  });
  document.querySelector("#mine").replaceChildren(...rows);
}

export function add(list, matches, queries) {
  const rows = matches.slice(-SHOWN).reverse().map((match) => {
    const row = document.createElement("li");
    row.dataset.post = match.id;
    const query = document.createElement("b");
    query.textContent = words(queries.get(match.query)) || match.query;
    const where = document.createElement("span");
    where.className = "place";
    where.textContent = ` ${place(match.lon, match.lat)} `;
    row.append(query, where, document.createElement("br"), match.text);
    if (match.attributes) row.append(document.createElement("br"), match.attributes);
    return row;
  });
  list.prepend(...rows);
  while (list.children.length > SHOWN) list.lastChild.remove();
}

// Posts that were withdrawn by those who wrote them; without ids all of them.
export function remove(list, ids) {
  for (const row of [...list.children]) if (!ids || ids.has(row.dataset.post)) row.remove();
}

// Screen readers hear of matches now and then, not of each.
export function announcer(element) {
  let count = 0;
  let last = "";
  let timer = null;
  const say = () => {
    timer = null;
    if (!count) return;
    element.textContent = count === 1 ? `A match: ${last}` : `${count} matches, the last: ${last}`;
    count = 0;
    timer = setTimeout(say, NEWS_MS);
  };
  return (matches) => {
    if (!matches) {
      element.textContent = last = "";
      count = 0;
      return;
    }
    count += matches.length;
    last = matches.at(-1).text.slice(0, 200);
    timer ??= setTimeout(say, 200);
  };
}

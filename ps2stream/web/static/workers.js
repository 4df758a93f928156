// The workers of the plan: colour, how busy, how many postings.

const GOLDEN = 137.508;
const MOST_UNITS = 20;
const MOST_SWATCHES = 8;

export function colour(worker) {
  return `hsl(${Math.round(200 + worker * GOLDEN) % 360}, 60%, 50%)`;
}

export function showLoad(load) {
  const line = document.querySelector("#plan");
  const table = document.querySelector("#workers");
  const shared = document.querySelector("#shared");
  shared.hidden = Boolean(load.problem) || !load.replicated.length;
  if (load.problem) {
    line.textContent = `Plan and load are not shown: ${load.problem}`;
    table.hidden = true;
    return;
  }
  const units = load.replicated.slice(0, MOST_UNITS);
  shared.querySelector("ul").replaceChildren(...units.map(item));
  const next = load.following_version;
  const how = load.coexisting ? `version ${next} coexists` : `migrating to version ${next}`;
  const change = next ? `, ${how}` : "";
  const balance = load.balance === null ? "" : `; balance ${load.balance.toFixed(2)}`;
  const wait = load.workers.length ? "" : `; loads after ${load.period_s} s`;
  line.textContent = `Plan version ${load.plan_version}${change}${balance}${wait}`;
  table.hidden = !load.workers.length;
  table.tBodies[0].replaceChildren(...load.workers.map(row));
}

// A replicated or sharded unit in words: "41.2 % of the objects meet this cell: they go to one of
// workers 0, 1", or "they go to all workers 0, 1, which share its queries".
export function describeUnit({ term, cell, workers, share, sharded }) {
  const words = term === null ? null : term || "any text";
  const what = [words, cell === null ? "everywhere" : words === null ? "this cell" : "in this cell"];
  const some = share === null ? "objects" : `${(100 * share).toFixed(1)} % of the objects`;
  const list = workers.join(", ");
  const where = sharded ? `all workers ${list}, which share its queries` : `one of workers ${list}`;
  return `${some} meet ${what.filter((part) => part !== null).join(" ")}: they go to ${where}`;
}

function item(unit) {
  const line = document.createElement("li");
  const { west, south, east, north } = unit;
  const side = (degrees) => Number(degrees.toFixed(3));
  const where = unit.cell === null ? "" : ` (${side(west)}..${side(east)} E, ${side(south)}..${side(north)} N)`;
  line.append(...unit.workers.slice(0, MOST_SWATCHES).map(swatch), describeUnit(unit) + where);
  return line;
}

function row(worker) {
  const row = document.createElement("tr");
  const name = row.insertCell();
  name.append(swatch(worker.worker), String(worker.worker));
  row.insertCell().textContent = `${(100 * worker.busy).toFixed(1)} %`;
  row.insertCell().textContent = Math.round(worker.postings).toLocaleString("en");
  return row;
}

function swatch(worker) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "swatch");
  svg.setAttribute("viewBox", "0 0 1 1");
  svg.setAttribute("aria-hidden", "true");
  const square = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  square.setAttribute("width", "1");
  square.setAttribute("height", "1");
  square.setAttribute("fill", colour(worker));
  svg.append(square);
  return svg;
}

// The workers of the plan: colour, how busy, how many postings.

const GOLDEN = 137.508;

export function colour(worker) {
  return `hsl(${Math.round(200 + worker * GOLDEN) % 360}, 60%, 50%)`;
}

export function showLoad(load) {
  const line = document.querySelector("#plan");
  const table = document.querySelector("#workers");
  if (load.problem) {
    line.textContent = `Plan and load are not shown: ${load.problem}`;
    table.hidden = true;
    return;
  }
  const next = load.following_version;
  const how = load.coexisting ? `version ${next} coexists` : `migrating to version ${next}`;
  const change = next ? `, ${how}` : "";
  const balance = load.balance === null ? "" : `; balance ${load.balance.toFixed(2)}`;
  const wait = load.workers.length ? "" : `; loads after ${load.period_s} s`;
  line.textContent = `Plan version ${load.plan_version}${change}${balance}${wait}`;
  table.hidden = !load.workers.length;
  table.tBodies[0].replaceChildren(...load.workers.map(row));
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

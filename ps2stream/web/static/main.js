// The page: what the server tells, shown; what people do, sent.

import { call } from "./api.js";
import { chart, short } from "./chart.js";
import { Drawing } from "./draw.js";
import { QueryForm } from "./form.js";
import { add, announcer, mine, remove } from "./lists.js";
import { LiveMap } from "./map.js";
import { listen } from "./stream.js";
import { watchTheme } from "./theme.js";
import { showLoad } from "./workers.js";

const $ = (id) => document.getElementById(id);
const SECONDS = 120;

let live = null;
watchTheme($("theme"), () => live?.paint());
try {
  live = new LiveMap("map");
} catch {
  $("map").textContent = "The map cannot be drawn: this browser offers no WebGL. All else works.";
  $("layers").hidden = true;
  for (const button of document.querySelectorAll("[data-draw]")) button.hidden = true;
}
const form = new QueryForm(live ?? { draft() {} });
if (live) {
  const drawing = new Drawing(live, (drawn) => form.take(drawn));
  form.onDraw((kind) => drawing.begin(kind));
}
form.shown();
for (const box of document.querySelectorAll("#layers input")) {
  box.addEventListener("change", () => live?.show(box.value, box.checked));
}

const throughput = chart($("throughput"), [
  { title: "objects", unit: "/s", of: (s) => s.objects },
  { title: "matches", unit: "/s", of: (s) => s.matches },
]);
const latency = chart($("latency"), [
  { title: "latency, median", unit: " ms", of: (s) => s.p50 },
  { title: "99 of 100", unit: " ms", of: (s) => s.p99 },
]);
const announce = announcer($("news"));
const queries = live?.queries ?? new Map();
let seconds = [];
let version = null;
let missed = 0; // by the map's process

async function drop(id) {
  try {
    await call("DELETE", `/api/queries/${encodeURIComponent(id)}`);
    $("words").focus();
  } catch (error) {
    $("problem").textContent = error.message;
  }
}

async function showPlan(load) {
  showLoad(load);
  if (!live || load.problem) return;
  if (load.plan_version !== version) {
    version = load.plan_version;
    try {
      const plan = await call("GET", "/api/plan");
      if (plan.leaves) live.setPlan(plan.leaves);
    } catch {
      version = null; // asked again with the next load
    }
  }
  live.setLoad(load);
}

function link({ up, server, why }) {
  $("link").textContent = up ? `Connected to ${server}` : `No connection to ${server}: ${why}. Trying again …`;
  $("link").classList.toggle("down", !up);
}

// Posts that were withdrawn are shown no longer; null: any may be.
function forget(ids) {
  live?.withdraw(ids);
  remove($("all"), ids);
  remove($("own"), ids);
  announce(null);
}

function told(news) {
  if (news.link) link(news.link);
  if (news.status) $("live").textContent = news.status.problem ? "–" : news.status.live_queries.toLocaleString("en");
  if (news.mine) {
    live?.setOwn(news.mine);
    mine(news.mine, drop);
  }
  if (news.regions) live?.relist(news.regions);
  if (news.queries) live?.learn(news.queries, false);
  if (news.objects) live?.appear("objects", news.objects);
  if (news.matches) {
    live?.appear("matches", news.matches);
    add($("all"), news.matches, queries);
  }
  if (news.own) {
    live?.appear("own", news.own);
    add($("own"), news.own, queries);
    announce(news.own);
  }
  if (news.forget) forget(null);
  if (news.withdrawn) forget(new Set(news.withdrawn));
  if (news.history) seconds = news.history;
  if (news.seconds) {
    seconds = [...seconds, ...news.seconds].slice(-SECONDS);
    throughput(seconds);
    latency(seconds);
    const last = seconds.at(-1);
    $("objects-s").textContent = short(last.objects);
    $("matches-s").textContent = short(last.matches);
    $("p50").textContent = last.p50 === null ? "–" : `${short(last.p50)} ms`;
  }
  if (news.load) showPlan(news.load);
  missed = news.missed ?? missed;
  const less = missed + news.dropped;
  $("missed").hidden = !less;
  $("missed").textContent = `This page was too slow for ${less} of what came.`;
}

const lost = (why) => {
  const what = why ? `The map's own process refuses: ${why.replace(/\.$/, "")}.` : "The map's own process does not answer.";
  $("link").textContent = `${what} Trying again …`;
  $("link").classList.add("down");
};
await live?.ready;
for (const box of document.querySelectorAll("#layers input")) live?.show(box.value, box.checked);
listen(told, lost, () => forget(null));
document.documentElement.dataset.ready = "yes";

// The map: sources and layers, points that fade, regions that light up.

import { dark } from "./theme.js";
import { colour, describeUnit } from "./workers.js";

const gl = window.maplibregl;
const FADE_MS = 9000;
const LIT_MS = 4000;
const MOST = { objects: 600, matches: 300, own: 300 };
const REFRESH_MS = 250;
const LAYERS = {
  objects: ["objects"],
  matches: ["matches", "own", "lit", "lit-line"],
  regions: ["regions", "regions-line"],
  plan: ["plan", "plan-line", "hot", "shared", "shared-line", "shared-dash"],
};
const POINTS = ["own", "matches", "objects"];
const still = matchMedia("(prefers-reduced-motion: reduce)");

const LIGHT = { water: "#dbe6ee", land: "#f7f6f2", border: "#c3c8cd", object: "#51606f", hit: "#d97706", own: "#be185d", region: "#1d4ed8" };
const DARK = { water: "#0f151b", land: "#222b34", border: "#3d4955", object: "#9fb0c0", hit: "#fbbf24", own: "#f472b6", region: "#8ab4ff" };

const collection = (features) => ({ type: "FeatureCollection", features });
const box = ({ west, south, east, north }, properties) => ({
  type: "Feature",
  properties,
  geometry: { type: "Polygon", coordinates: [[[west, south], [east, south], [east, north], [west, north], [west, south]]] },
});
const hues = () => (dark() ? DARK : LIGHT);

export class LiveMap {
  constructor(container) {
    gl.setWorkerUrl("/static/vendor/maplibre-gl-csp-worker.js");
    this.map = new gl.Map({
      container,
      style: { version: 8, sources: {}, layers: [] },
      center: [0, 25],
      zoom: 0.6,
      maxZoom: 14,
      dragRotate: false,
      pitchWithRotate: false,
      attributionControl: false, // the page's foot says it
      locale: { "Map.Title": "Map; arrow keys move it, plus and minus zoom" },
    });
    this.map.touchZoomRotate.disableRotation();
    this.map.addControl(new gl.NavigationControl({ showCompass: false }), "top-right");
    this.points = { objects: [], matches: [], own: [] };
    this.queries = new Map();
    this.regions = new Map(); // of the queries that are listed
    this.lit = new Map(); // query: until when
    this.stale = new Set();
    this.touched = false;
    this.map.on("mousedown", () => { this.touched = true; });
    this.map.on("touchstart", () => { this.touched = true; });
    this.map.on("wheel", () => { this.touched = true; });
    this.ready = new Promise((done) => this.map.on("load", done)).then(() => this.begin());
  }

  begin() {
    const { map } = this;
    const empty = { type: "geojson", data: collection([]) };
    map.addSource("world", { type: "geojson", data: "/static/vendor/world.json" });
    for (const name of ["plan", "hot", "shared", "regions", "lit", "draft", ...POINTS]) map.addSource(name, empty);
    const add = (id, type, source, paint, filter) =>
      map.addLayer({ id, type, source, paint, ...(filter && { filter }) });
    add("water", "background", undefined, {});
    add("land", "fill", "world", {}, ["==", ["get", "kind"], "land"]);
    add("plan", "fill", "plan", { "fill-color": ["get", "colour"], "fill-opacity": 0.12 });
    add("border", "line", "world", { "line-width": 0.6 });
    add("plan-line", "line", "plan", { "line-color": ["get", "colour"], "line-width": ["case", ["get", "text"], 2.5, 0.8], "line-opacity": 0.7 });
    add("hot", "line", "hot", { "line-color": ["get", "colour"], "line-width": 3 });
    // A replicated cell: an outline in the colours of two of its workers.
    add("shared", "fill", "shared", { "fill-color": ["get", "colour"], "fill-opacity": 0.15 });
    add("shared-line", "line", "shared", { "line-color": ["get", "colour"], "line-width": 4 });
    add("shared-dash", "line", "shared", { "line-color": ["get", "other"], "line-width": 4, "line-dasharray": [1.5, 1.5] });
    add("regions", "fill", "regions", { "fill-opacity": ["case", ["get", "own"], 0.12, 0.02] });
    add("regions-line", "line", "regions", { "line-width": ["case", ["get", "own"], 2, 0.6], "line-opacity": ["case", ["get", "own"], 1, 0.45] });
    add("lit", "fill", "lit", { "fill-opacity": 0.25 });
    add("lit-line", "line", "lit", { "line-width": 2 });
    add("objects", "circle", "objects", { "circle-radius": 3, "circle-opacity": ["-", 0.9, ["*", 0.8, ["get", "age"]]] });
    for (const id of ["matches", "own"]) {
      const growing = ["interpolate", ["linear"], ["get", "age"], 0, 12, 0.12, 6, 1, 5];
      add(id, "circle", id, {
        "circle-radius": still.matches ? 6 : growing,
        "circle-opacity": ["-", 1, ["*", 0.7, ["get", "age"]]],
        "circle-stroke-width": 1.5,
      });
    }
    add("draft", "line", "draft", { "line-width": 2.5, "line-dasharray": [2, 1.5] });
    this.paint();
    this.begun = true;
    setInterval(() => this.refresh(), REFRESH_MS);
    map.on("click", (event) => this.open(event));
  }

  // As the theme says.
  paint() {
    const h = hues();
    const set = (id, name, value) => this.map.getLayer(id) && this.map.setPaintProperty(id, name, value);
    set("water", "background-color", h.water);
    set("land", "fill-color", h.land);
    set("border", "line-color", h.border);
    set("objects", "circle-color", h.object);
    for (const [id, hue] of [["matches", h.hit], ["own", h.own]]) {
      set(id, "circle-color", hue);
      set(id, "circle-stroke-color", h.land);
    }
    for (const id of ["regions", "lit"]) {
      const hue = id === "lit" ? h.hit : h.region;
      set(id, "fill-color", ["case", ["get", "own"], h.own, hue]);
      set(`${id}-line`, "line-color", ["case", ["get", "own"], h.own, hue]);
    }
    set("draft", "line-color", h.own);
  }

  show(name, visible) {
    for (const id of LAYERS[name]) {
      if (this.map.getLayer(id)) this.map.setLayoutProperty(id, "visibility", visible ? "visible" : "none");
    }
  }

  // Points of one of POINTS; the regions of their queries light up.
  appear(name, posts) {
    const born = performance.now();
    const kept = this.points[name];
    for (const post of posts) {
      if (Number.isFinite(post.lon) && Number.isFinite(post.lat)) kept.push({ ...post, born });
      if (post.query) {
        this.lit.delete(post.query);
        this.lit.set(post.query, born + LIT_MS);
        this.stale.add("lit");
      }
    }
    kept.splice(0, kept.length - MOST[name]);
    this.stale.add(name);
    if (name === "objects") this.approach();
  }

  // Posts that were withdrawn; without ids all of them.
  withdraw(ids) {
    for (const name of POINTS) {
      this.points[name] = this.points[name].filter((post) => ids && !ids.has(post.id));
      this.stale.add(name);
    }
    this.said?.remove();
  }

  // Queries that are known, and, if they are `listed`, whose regions are drawn.
  learn(features, listed) {
    for (const feature of features) {
      this.queries.set(feature.properties.id, feature);
      if (listed && feature.geometry) this.regions.set(feature.properties.id, feature);
    }
    while (this.queries.size > 8000) this.queries.delete(this.queries.keys().next().value);
    this.stale.add("regions").add("lit");
  }

  // Which regions of others are drawn.
  relist(features) {
    const own = [...this.regions.values()].filter((feature) => feature.properties.own);
    this.regions.clear();
    this.learn([...features, ...own], true);
  }

  // Those that were drawn here; one that is missing was dropped.
  setOwn(features) {
    for (const [id, feature] of this.regions) {
      if (feature.properties.own) this.regions.delete(id);
    }
    this.learn(features, true);
  }

  setPlan(leaves) {
    for (const leaf of leaves.features) leaf.properties.colour = colour(leaf.properties.worker);
    this.map.getSource("plan").setData(leaves);
  }

  // How much there is to do in a leaf shows by how strong its colour is.
  setLoad({ leaves, hottest, replicated }) {
    const most = Math.max(...leaves.map((l) => l.load_us), 1);
    const cases = leaves.flatMap((l) => [l.leaf, 0.06 + (0.3 * l.load_us) / most]);
    const opacity = cases.length ? ["match", ["get", "leaf"], ...cases, 0.06] : 0.12;
    this.map.setPaintProperty("plan", "fill-opacity", opacity);
    const boxes = hottest.slice(0, 10).map((part) => box(part, { colour: colour(part.worker) }));
    this.map.getSource("hot").setData(collection(boxes));
    const shared = replicated.filter((unit) => unit.cell !== null).map((unit) => {
      const [colours, text] = [unit.workers.map(colour), describeUnit(unit)];
      return box(unit, { colour: colours[0], other: colours[1], text });
    });
    this.map.getSource("shared").setData(collection(shared));
  }

  draft(geometry) {
    const features = geometry ? [{ type: "Feature", properties: {}, geometry }] : [];
    this.map.getSource("draft")?.setData(collection(features));
  }

  refresh() {
    const now = performance.now();
    for (const name of POINTS) {
      const before = this.points[name].length;
      const kept = (this.points[name] = this.points[name].filter((p) => now - p.born < FADE_MS));
      if (!before && !this.stale.has(name)) continue;
      const features = kept.map((p) => ({
        type: "Feature",
        properties: { age: (now - p.born) / FADE_MS, text: p.text, attributes: p.attributes ?? "", query: p.query ?? "" },
        geometry: { type: "Point", coordinates: [p.lon, p.lat] },
      }));
      this.map.getSource(name).setData(collection(features));
    }
    for (const [id, until] of this.lit) {
      if (until < now || this.lit.size > 40) {
        this.lit.delete(id);
        this.stale.add("lit");
      }
    }
    if (this.stale.has("lit")) {
      const known = [...this.lit.keys()].map((id) => this.queries.get(id));
      this.map.getSource("lit").setData(collection(known.filter((f) => f?.geometry)));
    }
    if (this.stale.has("regions")) {
      this.map.getSource("regions").setData(collection([...this.regions.values()]));
    }
    this.stale.clear();
  }

  // Once, to where the first objects are, unless somebody has moved the map.
  approach() {
    const seen = this.points.objects;
    if (this.touched || seen.length < 40) return;
    this.touched = true;
    const bounds = new gl.LngLatBounds();
    for (const p of seen) bounds.extend([p.lon, p.lat]);
    this.map.fitBounds(bounds, { padding: 40, maxZoom: 6, animate: false });
  }

  open(event) {
    if (this.drawing) return;
    const { x, y } = event.point;
    const near = [[x - 6, y - 6], [x + 6, y + 6]];
    const [point] = this.map.queryRenderedFeatures(near, { layers: POINTS });
    const [leaf] = point ? [] : this.map.queryRenderedFeatures(event.point, { layers: ["plan"] });
    if (!point && !leaf) return;
    const [shared] = point ? [] : this.map.queryRenderedFeatures(event.point, { layers: ["shared"] });
    const said = document.createElement("div");
    if (point) {
      const { query, text, attributes } = point.properties;
      if (query) {
        const name = document.createElement("strong");
        name.textContent = this.queries.get(query)?.properties.expression || query;
        said.append(name, document.createElement("br"));
      }
      said.append(text);
      if (attributes) said.append(document.createElement("br"), attributes);
    } else if (shared) {
      said.append(shared.properties.text);
    } else {
      const workers = JSON.parse(leaf.properties.workers);
      const what = leaf.properties.text ? "divided by text among workers" : "of worker";
      said.append(`Leaf ${leaf.properties.leaf} ${what} ${workers.join(", ")}`);
    }
    this.said = new gl.Popup({ maxWidth: "280px" }).setLngLat(event.lngLat).setDOMContent(said).addTo(this.map);
  }
}

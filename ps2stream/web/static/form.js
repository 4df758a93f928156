// The form of a new query: words, and an area as numbers, drawn or typed.

import { call } from "./api.js";
import { box } from "./draw.js";

const SIDES = ["west", "south", "east", "north"];
const $ = (id) => document.getElementById(id);

export class QueryForm {
  constructor(live) {
    this.live = live;
    this.form = $("new");
    this.form.addEventListener("change", () => this.shown());
    this.form.addEventListener("input", () => this.preview());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
  }

  get area() {
    return new FormData(this.form).get("area");
  }

  onDraw(begin) {
    for (const button of this.form.querySelectorAll("[data-draw]")) {
      button.addEventListener("click", () => begin(button.dataset.draw));
    }
  }

  // What was drawn; null: nothing was.
  take(drawn) {
    if (drawn?.kind === "rectangle") drawn.sides.forEach((v, i) => { $(SIDES[i]).value = v; });
    if (drawn?.kind === "polygon") $("corners").value = drawn.corners.map((c) => c.join(" ")).join("\n");
    if (drawn) {
      this.form.elements.area.value = drawn.kind;
      $("words").focus();
    }
    this.shown();
  }

  shown() {
    for (const kind of ["rectangle", "polygon"]) $(kind).hidden = this.area !== kind;
    this.preview();
  }

  preview() {
    let geometry = null;
    try {
      const region = this.region();
      if (region?.type === "Rect") {
        const east = region.lon_max + (region.lon_min > region.lon_max ? 360 : 0);
        geometry = box([region.lon_min, region.lat_min], [east, region.lat_max]);
      } else {
        geometry = region;
      }
    } catch { /* not yet whole */ }
    this.live.draft(geometry);
  }

  // The region in the form the service takes. Throws an Error for what is not filled in.
  region() {
    if (this.area === "rectangle") {
      const sides = SIDES.map((name) => {
        const value = $(name).value.trim();
        if (!value || !Number.isFinite(Number(value))) throw new Error(`${name}: a number of degrees is missing`);
        return Number(value);
      });
      return { type: "Rect", lon_min: sides[0], lat_min: sides[1], lon_max: sides[2], lat_max: sides[3] };
    }
    if (this.area === "polygon") {
      const ring = $("corners").value.trim().split("\n").filter((line) => line.trim()).map((line, i) => {
        const corner = line.trim().split(/[\s,;]+/).map(Number);
        if (corner.length !== 2 || !corner.every(Number.isFinite)) {
          throw new Error(`corner ${i + 1}: expected longitude and latitude, as in 8.5 47.4`);
        }
        return corner;
      });
      if (ring.length < 3) throw new Error("corners: a polygon has three at least");
      const [a, b] = [ring[0], ring.at(-1)];
      if (a[0] !== b[0] || a[1] !== b[1]) ring.push([...a]);
      return { type: "Polygon", coordinates: [ring] };
    }
    return null;
  }

  async send() {
    const problem = $("problem");
    problem.textContent = "";
    const button = this.form.querySelector("[type=submit]");
    button.disabled = true;
    try {
      await call("POST", "/api/queries", { expression: $("words").value.trim(), region: this.region() });
      this.form.reset();
      this.shown();
    } catch (error) {
      problem.textContent = error.message;
    } finally {
      button.disabled = false;
    }
  }
}

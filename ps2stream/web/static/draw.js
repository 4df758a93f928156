// Drawing on the map: a rectangle by dragging or by two clicks, a polygon by clicks.
// What is drawn is handed to the form; the form's fields are what counts.

const NEAR = 8; // pixels

export class Drawing {
  constructor(live, done) {
    this.live = live;
    this.done = done;
    this.kind = null;
    this.corners = [];
    this.hint = document.querySelector("#hint");
    this.buttons = document.querySelector("#finish");
    const map = live.map;
    map.on("mousedown", (e) => this.press(e));
    map.on("touchstart", (e) => this.press(e));
    map.on("mousemove", (e) => this.move(e));
    map.on("touchmove", (e) => this.move(e));
    map.on("mouseup", (e) => this.release(e));
    map.on("touchend", (e) => this.release(e));
    this.buttons.addEventListener("click", (e) => {
      if (e.target.dataset.do === "finish") this.finish();
      if (e.target.dataset.do === "cancel") this.end();
    });
    document.addEventListener("keydown", (e) => {
      if (!this.kind) return;
      if (e.key === "Escape") this.end();
      if (e.key === "Enter" && e.target.closest("#map")) this.finish();
    });
  }

  begin(kind) {
    this.end();
    this.kind = kind;
    this.live.drawing = this.live.touched = true;
    const { map } = this.live;
    map.dragPan.disable();
    map.doubleClickZoom.disable();
    map.getContainer().classList.add("drawing");
    this.say(kind === "rectangle"
      ? "Drag, or click two opposite corners. Escape ends it."
      : "Click the corners; click the first one again, or Finish, to close it. Escape ends it.");
    this.buttons.hidden = false;
    this.buttons.querySelector("[data-do=finish]").hidden = kind === "rectangle";
    map.getContainer().scrollIntoView({ block: "nearest" });
    map.getCanvas().focus({ preventScroll: true });
  }

  end() {
    if (!this.kind) return;
    this.kind = null;
    this.corners = [];
    this.pressed = null;
    const { map } = this.live;
    map.dragPan.enable();
    map.doubleClickZoom.enable();
    map.getContainer().classList.remove("drawing");
    this.hint.hidden = this.buttons.hidden = true;
    setTimeout(() => { this.live.drawing = this.kind !== null; }, 0); // after this click
    this.done(null);
  }

  say(text) {
    this.hint.textContent = text;
    this.hint.hidden = false;
  }

  press(event) {
    if (!this.kind) return;
    event.preventDefault();
    this.pressed = event.point;
    if (this.kind === "rectangle" && !this.corners.length) {
      this.corners = [at(event)];
      this.fresh = true;
    } else {
      this.fresh = false;
    }
  }

  move(event) {
    if (!this.kind || !this.corners.length) return;
    const here = at(event);
    if (this.kind === "rectangle") this.live.draft(box(this.corners[0], here));
    else this.live.draft({ type: "LineString", coordinates: [...this.corners, here] });
  }

  release(event) {
    if (!this.kind || !this.pressed) return;
    const moved = this.pressed.dist(event.point) > NEAR;
    this.pressed = null;
    if (this.kind === "rectangle") {
      if (this.fresh && !moved) {
        this.say("Now the opposite corner.");
        return;
      }
      const [[a, b], [c, d]] = [this.corners[0], at(event)];
      if (a === c || b === d) return;
      const [west, east] = meridians(Math.min(a, c), Math.max(a, c));
      const sides = [west, Math.min(b, d), east, Math.max(b, d)];
      this.end();
      this.done({ kind: "rectangle", sides });
      return;
    }
    const first = this.corners.length && this.live.map.project(this.corners[0]);
    if (this.corners.length > 2 && first.dist(event.point) <= NEAR) {
      this.finish();
      return;
    }
    this.corners.push(at(event));
    this.live.draft({ type: "LineString", coordinates: this.corners });
    this.say(`${this.corners.length} corners`);
  }

  finish() {
    if (this.kind !== "polygon") return;
    if (this.corners.length < 3) {
      this.say("A polygon has three corners at least.");
      return;
    }
    const turn = 360 * Math.floor((Math.min(...this.corners.map(([lon]) => lon)) + 180) / 360);
    const corners = this.corners.map(([lon, lat]) => [round(lon - turn), lat]);
    this.end();
    this.done({ kind: "polygon", corners });
  }
}

export function box([a, b], [c, d]) {
  return { type: "Polygon", coordinates: [[[a, b], [c, b], [c, d], [a, d], [a, b]]] };
}

// The sides of a rectangle that was drawn anywhere on the map, which goes on in the east and west.
// Across the antimeridian the western one is the greater number.
function meridians(west, east) {
  if (east - west >= 360) return [-180, 180];
  const wrapped = (lon) => round(lon - 360 * Math.floor((lon + 180) / 360));
  const right = wrapped(east);
  return [wrapped(west), right === -180 ? 180 : right];
}

function round(degrees) {
  return Math.round(degrees * 1e4) / 1e4;
}

function at(event) {
  const { lng, lat } = event.lngLat;
  return [round(lng), Math.max(-90, Math.min(90, round(lat)))];
}

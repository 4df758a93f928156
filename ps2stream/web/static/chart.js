// A chart of a few lines over the last two minutes, with a sentence for who does not see it.

const SVG = "http://www.w3.org/2000/svg";
const SECONDS = 120;

export function chart(figure, lines) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${SECONDS - 1} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${lines.map(({ title }) => title).join(", ")}: nothing yet`);
  const drawn = lines.map((_, i) => {
    const line = document.createElementNS(SVG, "polyline");
    line.setAttribute("class", `line-${i}`);
    svg.append(line);
    return line;
  });
  const caption = figure.querySelector("figcaption");
  const keys = lines.map(({ title }, i) => {
    const key = document.createElement("span");
    key.className = `key-${i}`;
    key.textContent = `— ${title} `;
    return key;
  });
  const top = document.createElement("span");
  caption.replaceChildren(...keys, top);
  figure.prepend(svg);

  return (seconds) => {
    const values = lines.map(({ of }) => seconds.map(of));
    const most = Math.max(...values.flat().map((v) => v ?? 0));
    const high = most || 1;
    values.forEach((line, i) => {
      const first = SECONDS - line.length;
      const points = line.map((v, x) => (v === null ? null : `${first + x},${98 - (95 * v) / high}`));
      drawn[i].setAttribute("points", points.filter((p) => p !== null).join(" "));
    });
    const unit = lines[0].unit;
    top.textContent = `(at most ${short(most)}${unit})`;
    const last = lines.map(({ title }, i) => `${title} ${short(values[i].at(-1))}${unit}`);
    svg.setAttribute("aria-label", `The last two minutes: ${last.join(", ")}; at most ${short(most)}${unit}.`);
  };
}

export function short(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10000) return `${Math.round(value / 1000)}k`;
  return value >= 100 ? String(Math.round(value)) : String(Math.round(value * 10) / 10);
}

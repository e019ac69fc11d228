// A scatter plot whose points move when the layer changes. Groups differ in color and shape.

import { byId, el, rovingFocus, svg } from "./dom.js";

const WIDE = [640, 420];
const NARROW = [350, 320]; // on a phone, where markers must not shrink with the plot
const MARGIN = 24;
const MAX_DISTANCE = 26; // pointer distance at which a point is selected
const SHAPES = [
  "M0,-7A7,7 0 1 1 0,7A7,7 0 1 1 0,-7Z",
  "M-6,-6H6V6H-6Z",
  "M0,-8L7.5,6H-7.5Z",
  "M0,-8L8,0L0,8L-8,0Z",
  "M-2.4,-7.5H2.4V-2.4H7.5V2.4H2.4V7.5H-2.4V2.4H-7.5V-2.4H-2.4Z",
  "M0,8L7.5,-6H-7.5Z",
];
export const COLORS = 6;

/** The marker of a group. */
export function marker(group) {
  return svg("path", { d: SHAPES[group % SHAPES.length], class: `mark color-${group % COLORS}` });
}

export class Plane {
  /** `onSelect(point, join)` is called when a point is selected. */
  constructor(plot, onSelect) {
    this.plot = plot;
    this.drawnResponse = null;
    plot.addEventListener("click", (event) => {
      const nearest = this.nearest(event);
      if (nearest !== null) onSelect(nearest, null);
    });
    plot.addEventListener("pointermove", (event) =>
      this.showCaption(this.nearest(event) ?? this.selected),
    );
    plot.addEventListener("pointerleave", () => this.showCaption(this.selected));
    plot.addEventListener("focusin", (event) => {
      const point = event.target.closest(".point");
      if (point) this.showCaption(Number(point.dataset.index));
    });
    rovingFocus(plot, ".point", (i) => onSelect(i, "point"));
    new ResizeObserver(() => {
      if (this.redraw && this.size() !== this.drawnSize) this.redraw();
    }).observe(plot);
  }

  size() {
    return this.plot.clientWidth < 480 ? NARROW : WIDE;
  }

  /** The point nearest to the pointer, if it is close enough. */
  nearest(event) {
    const box = this.plot.getBoundingClientRect();
    const scale = this.drawnSize?.[0] / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    const distances = (this.positions ?? []).map(([a, b]) => Math.hypot(a - x, b - y));
    const minimum = Math.min(...distances);
    return minimum <= MAX_DISTANCE ? distances.indexOf(minimum) : null;
  }

  /** The largest scale at which all points are inside the plot. */
  maxScale(points) {
    const [width, height] = this.drawnSize;
    const maximum = (axis) => Math.max(1e-6, ...points.map((point) => Math.abs(point[axis])));
    return Math.min((width / 2 - MARGIN) / maximum(0), (height / 2 - MARGIN) / maximum(1));
  }

  /** Draw the points of a layer; existing points move. */
  draw(response, layer, groups) {
    this.redraw = () => {
      this.draw(response, layer, groups);
      this.choose(this.selected, this.sentence);
    };
    const [width, height] = this.size();
    if (this.drawnResponse !== response || this.drawnSize !== this.size()) {
      this.drawnResponse = response;
      this.drawnSize = this.size();
      this.plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.points = response.points.map((_, i) =>
        svg("g", { class: "point", role: "option", "data-index": i, tabindex: "-1" }),
      );
      this.note = svg("text", { class: "stack-note", x: width / 2, y: height / 2 + 34 });
      this.plot.replaceChildren(
        svg("line", { class: "axis", x1: width / 2, y1: 8, x2: width / 2, y2: height - 8 }),
        svg("line", { class: "axis", x1: 8, y1: height / 2, x2: width - 8, y2: height / 2 }),
        ...this.points,
        this.note,
      );
      // One scale for all layers, so that distances are comparable.
      this.scale = this.maxScale(response.layers.flatMap((s) => s.coordinates));
    }
    const scale = Math.min(this.scale, this.maxScale(layer.coordinates)); // a mix may be wider
    this.positions = layer.coordinates.map(([x, y]) => [
      width / 2 + x * scale,
      height / 2 - y * scale,
    ]);
    this.points.forEach((point, i) => {
      const [x, y] = this.positions[i];
      point.style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`;
      point.replaceChildren(svg("circle", { class: "halo", r: 13 }), marker(groups.of[i]));
      const tokens = response.sentences[response.points[i].sentence].tokens;
      point.setAttribute("aria-label", `${tokens.join(" ")}; ${groups.names[groups.of[i]]}`);
    });
    const areIdentical = response.points.length > 1 && layer.mean_cosine > 0.9995;
    this.note.textContent = areIdentical ? `${response.points.length} identical uses` : "";
  }

  /** Mark the selected point; `sentence(i)` returns the caption of a point. */
  choose(selected, sentence) {
    this.selected = this.points[selected] ? selected : null;
    this.sentence = sentence;
    this.points.forEach((point, i) => {
      point.setAttribute("aria-selected", i === this.selected);
      point.setAttribute("tabindex", i === (this.selected ?? 0) ? "0" : "-1");
    });
    this.showCaption(this.selected);
  }

  showCaption(i) {
    this.points?.forEach((point, j) => point.classList.toggle("shown", j === i));
    byId("senses-caption").replaceChildren(
      ...(i === null || i === undefined
        ? [
            el(
              "span",
              { class: "muted" },
              "Point at a marker, or use the arrow keys, to show its sentence.",
            ),
          ]
        : this.sentence(i)),
    );
  }
}

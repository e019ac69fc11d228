// A scatter plot whose points move when the layer changes. Groups differ in color and shape.

import { byId, el, roving, svg } from "./dom.js";

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
export function mark(group) {
  return svg("path", { d: SHAPES[group % SHAPES.length], class: `mark color-${group % COLORS}` });
}

export class Plane {
  /** Calls `chosen(point, join)` when a point is selected. */
  constructor(picture, chosen) {
    this.picture = picture;
    this.drawn = null;
    picture.addEventListener("click", (event) => {
      const near = this.nearest(event);
      if (near !== null) chosen(near, null);
    });
    picture.addEventListener("pointermove", (event) =>
      this.showCaption(this.nearest(event) ?? this.chosen),
    );
    picture.addEventListener("pointerleave", () => this.showCaption(this.chosen));
    picture.addEventListener("focusin", (event) => {
      const point = event.target.closest(".point");
      if (point) this.showCaption(Number(point.dataset.index));
    });
    roving(picture, ".point", (i) => chosen(i, "point"));
    new ResizeObserver(() => this.again && this.size() !== this.drawnSize && this.again()).observe(
      picture,
    );
  }

  size() {
    return this.picture.clientWidth < 480 ? NARROW : WIDE;
  }

  /** The point nearest to the pointer, if it is close enough. */
  nearest(event) {
    const box = this.picture.getBoundingClientRect();
    const size = this.drawnSize?.[0] / box.width;
    const [x, y] = [(event.clientX - box.left) * size, (event.clientY - box.top) * size];
    const far = (this.at ?? []).map(([a, b]) => Math.hypot(a - x, b - y));
    const least = Math.min(...far);
    return least <= MAX_DISTANCE ? far.indexOf(least) : null;
  }

  /** The largest scale at which all points are inside the plot. */
  fitting(points) {
    const [width, height] = this.drawnSize;
    const most = (axis) => Math.max(1e-6, ...points.map((at) => Math.abs(at[axis])));
    return Math.min((width / 2 - MARGIN) / most(0), (height / 2 - MARGIN) / most(1));
  }

  /** Draw the points of a layer; existing points move. */
  draw(answer, space, groups) {
    this.again = () => {
      this.draw(answer, space, groups);
      this.choose(this.chosen, this.sentence);
    };
    const [width, height] = this.size();
    if (this.drawn !== answer || this.drawnSize !== this.size()) {
      this.drawn = answer;
      this.drawnSize = this.size();
      this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.points = answer.points.map((_, i) =>
        svg("g", { class: "point", role: "option", "data-index": i, tabindex: "-1" }),
      );
      this.stack = svg("text", { class: "stack-note", x: width / 2, y: height / 2 + 34 });
      this.picture.replaceChildren(
        svg("line", { class: "axis", x1: width / 2, y1: 8, x2: width / 2, y2: height - 8 }),
        svg("line", { class: "axis", x1: 8, y1: height / 2, x2: width - 8, y2: height / 2 }),
        ...this.points,
        this.stack,
      );
      // One scale for all layers, so that distances are comparable.
      this.scale = this.fitting(answer.layers.flatMap((s) => s.coordinates));
    }
    const scale = Math.min(this.scale, this.fitting(space.coordinates)); // a mix may be wider
    this.at = space.coordinates.map(([x, y]) => [width / 2 + x * scale, height / 2 - y * scale]);
    this.points.forEach((point, i) => {
      const [x, y] = this.at[i];
      point.style.transform = `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`;
      point.replaceChildren(svg("circle", { class: "halo", r: 13 }), mark(groups.of[i]));
      const tokens = answer.sentences[answer.points[i].sentence].tokens;
      point.setAttribute("aria-label", `${tokens.join(" ")}; ${groups.names[groups.of[i]]}`);
    });
    const one = answer.points.length > 1 && space.mean_cosine > 0.9995;
    this.stack.textContent = one ? `${answer.points.length} identical uses` : "";
  }

  /** Mark the selected point; `sentence(i)` returns the caption of a point. */
  choose(chosen, sentence) {
    this.chosen = this.points[chosen] ? chosen : null;
    this.sentence = sentence;
    this.points.forEach((point, i) => {
      point.setAttribute("aria-selected", i === this.chosen);
      point.setAttribute("tabindex", i === (this.chosen ?? 0) ? "0" : "-1");
    });
    this.showCaption(this.chosen);
  }

  showCaption(i) {
    this.points?.forEach((point, j) => point.classList.toggle("shown", j === i));
    byId("senses-caption").replaceChildren(
      ...(i === null || i === undefined
        ? [
            el(
              "span",
              { class: "quiet-words" },
              "Point at a marker, or use the arrow keys, to show its sentence.",
            ),
          ]
        : this.sentence(i)),
    );
  }
}

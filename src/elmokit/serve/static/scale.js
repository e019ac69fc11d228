// Numbers as shades and text. Blue (positive) and orange (negative) are colorblind-safe.

/** Shade an element by a cosine: `--v` sets the strength of the shade, the class its color. */
export function shade(element, cosine) {
  const known = typeof cosine === "number";
  element.classList.add("shade");
  element.classList.toggle("negative", known && cosine < 0);
  const strength = known ? Math.min(1, Math.abs(cosine)) : 0;
  element.style.setProperty("--v", strength.toFixed(3));
  element.classList.toggle("strong", strength > 0.66); // switches the text color in the dark theme
  element.classList.toggle("strongest", strength > 0.82); // and in the light theme
}

export const formatNumber = (value) =>
  typeof value === "number" ? value.toFixed(2).replace("-", "−") : "–";

/** Format a number without the leading zero, for narrow cells. */
export function formatShort(value) {
  if (typeof value !== "number") return "–";
  const text = Math.abs(value).toFixed(2);
  return (
    (value < 0 && Number(text) > 0 ? "−" : "") + (text.startsWith("0") ? text.slice(1) : "1.0")
  );
}

export const formatPercent = (p) =>
  p >= 0.0995 ? `${Math.round(p * 100)}%` : p >= 0.001 ? `${(p * 100).toFixed(1)}%` : "<0.1%";

export const toBits = (logarithm) => -logarithm / Math.LN2;

export const formatRounded = (n) => (n < 20 ? n.toFixed(1) : Math.round(n).toLocaleString("en"));

/**
 * Compute the cosines of all pairs of tokens for a mix of layers.
 *
 * `gram[i][j][a][b]` is the dot product of token `a` in layer `i` and token `b` in layer `j`.
 */
export function mixCosines(gram, weights) {
  const size = gram[0][0].length;
  const dots = Array.from({ length: size }, () => new Float64Array(size));
  weights.forEach((s_i, i) =>
    weights.forEach((s_j, j) => {
      const s = s_i * s_j;
      if (s === 0) return;
      for (let a = 0; a < size; a++) {
        const row = gram[i][j][a];
        const target = dots[a];
        for (let b = 0; b < size; b++) target[b] += s * row[b];
      }
    }),
  );
  const lengths = dots.map((row, a) => Math.sqrt(Math.max(row[a], 0)));
  const matrix = dots.map((row, a) =>
    Array.from(row, (dot, b) =>
      lengths[a] && lengths[b] ? Math.max(-1, Math.min(1, dot / (lengths[a] * lengths[b]))) : null,
    ),
  );
  return { matrix, lengths };
}

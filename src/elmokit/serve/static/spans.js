// Tokens with labeled, possibly nested spans.

import { el, joined, spaced } from "./dom.js";
import { COLORS } from "./plane.js";

/**
 * Return tokens with spans; a span that crosses another one is split.
 *
 * A span is {start, end, label, words, title, color, chain, predicate}; only the first three are
 * required.
 */
export function spanned(tokens, spans) {
  const sorted = [...spans].sort((a, b) => a.start - b.start || b.end - a.end);
  const root = { start: 0, end: tokens.length, inner: [] };
  for (const span of sorted) insert(root, { ...span, inner: [] });
  return written(root, tokens);
}

function insert(node, span) {
  const last = node.inner[node.inner.length - 1];
  if (!last || span.start >= last.end) {
    node.inner.push(span);
  } else if (span.end <= last.end) {
    insert(last, span);
  } else {
    insert(last, { ...span, end: last.end, inner: [] });
    insert(node, { ...span, start: last.end, rest: true, inner: [] });
  }
}

function written(node, tokens) {
  const parts = [];
  const gap = (at) => (at < node.end && spaced(tokens[at]) ? " " : "");
  const plain = (from, to) => {
    if (to > from) parts.push(joined(tokens.slice(from, to)) + gap(to));
  };
  let at = node.start;
  for (const span of node.inner) {
    plain(at, span.start);
    parts.push(boxed(span, tokens), gap(span.end));
    at = span.end;
  }
  plain(at, node.end);
  return parts;
}

function boxed(span, tokens) {
  const tint = span.predicate ? "predicate" : `tint-${span.color % COLORS}`;
  const label = el(
    "span",
    { class: "label", title: span.title },
    span.label,
    span.words ? el("span", { class: "gloss" }, ` ${span.words}`) : null,
  );
  return el(
    "span",
    { class: `span ${tint}${span.rest ? " rest" : ""}`, "data-chain": span.chain },
    el("span", { class: "inside" }, ...written(span, tokens)),
    label,
  );
}

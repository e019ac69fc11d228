// Tokens with labeled, possibly nested spans.

import { el, joinTokens, needsSpaceBefore } from "./dom.js";
import { COLORS } from "./plane.js";

/**
 * Return tokens with spans; a span that crosses another one is split.
 *
 * A span is {start, end, label, words, title, color, chain, predicate}; only the first three are
 * required.
 */
export function renderSpans(tokens, spans) {
  const sorted = [...spans].sort((a, b) => a.start - b.start || b.end - a.end);
  const root = { start: 0, end: tokens.length, children: [] };
  for (const span of sorted) insert(root, { ...span, children: [] });
  return renderNode(root, tokens);
}

function insert(node, span) {
  const last = node.children[node.children.length - 1];
  if (!last || span.start >= last.end) {
    node.children.push(span);
  } else if (span.end <= last.end) {
    insert(last, span);
  } else {
    insert(last, { ...span, end: last.end, children: [] });
    insert(node, { ...span, start: last.end, rest: true, children: [] });
  }
}

function renderNode(node, tokens) {
  const parts = [];
  const gap = (position) => (position < node.end && needsSpaceBefore(tokens[position]) ? " " : "");
  const plain = (from, to) => {
    if (to > from) parts.push(joinTokens(tokens.slice(from, to)) + gap(to));
  };
  let position = node.start;
  for (const span of node.children) {
    plain(position, span.start);
    parts.push(renderSpan(span, tokens), gap(span.end));
    position = span.end;
  }
  plain(position, node.end);
  return parts;
}

function renderSpan(span, tokens) {
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
    el("span", { class: "inside" }, ...renderNode(span, tokens)),
    label,
  );
}

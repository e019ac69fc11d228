// Draws what the six tasks answer: names, opinions, inference, answers, roles, chains.

import { el, joined, spaced } from "./dom.js";
import { percent } from "./scale.js";
import { COLOURS } from "./plane.js";

const KINDS = {
  ner: names,
  sst5: opinion,
  snli: inference,
  squad: answer,
  srl: roles,
  coref: chains,
};

const OPINIONS = { 0: "very bad", 1: "bad", 2: "neutral", 3: "good", 4: "very good" };
const INFERENCES = {
  entailment: "it follows",
  contradiction: "it contradicts",
  neutral: "neither",
};
const TYPES = { PER: "person", LOC: "place", ORG: "organisation", MISC: "other name" };
const ROLES = {
  V: "verb",
  ARG0: "who does it",
  ARG1: "what it is done to",
  ARG2: "to whom, with what",
  ARG3: "from where",
  ARG4: "to where",
  TMP: "when",
  LOC: "where",
  MNR: "how",
  CAU: "why",
  PRP: "what for",
  PNC: "what for",
  DIR: "which way",
  NEG: "not",
  MOD: "may, can",
  ADV: "besides",
  DIS: "link",
  EXT: "how much",
  GOL: "to what end",
  COM: "with whom",
};

/** Return the elements that show a result of a task; one of an unknown kind is shown as it is. */
export function drawing(kind, result, given) {
  const draw = KINDS[kind];
  return draw ? draw(result, given) : [el("pre", {}, JSON.stringify(result, null, 2))];
}

function names({ tokens, entities }) {
  const types = [...new Set(entities.map(({ type }) => type))].sort();
  const spans = entities.map(({ start, end, type }) => ({
    start,
    end,
    label: type,
    title: TYPES[type],
    colour: types.indexOf(type),
  }));
  const none = entities.length
    ? []
    : [el("p", { class: "quiet-words" }, "No names found in this sentence.")];
  return [el("p", { class: "spans" }, ...spanned(tokens, spans)), ...none];
}

function opinion({ tokens, label, probabilities }) {
  return [el("p", { class: "spans" }, joined(tokens)), probable(probabilities, label, OPINIONS)];
}

function inference({ label, probabilities }) {
  return [probable(probabilities, label, INFERENCES)];
}

function answer({ answer: text, start, end }, { other }) {
  // Places are counted in characters as Python counts them.
  const letters = Array.from(other);
  const inside = letters.slice(start, end).join("") === text;
  const passage = inside
    ? [letters.slice(0, start).join(""), el("mark", {}, text), letters.slice(end).join("")]
    : [other];
  return [
    el("p", { class: "finding" }, el("b", {}, text || "no answer")),
    el("p", { class: "passage" }, ...passage),
  ];
}

function roles({ tokens, frames }) {
  if (!frames.length)
    return [
      el("p", { class: "spans" }, joined(tokens)),
      el("p", { class: "quiet-words" }, "No verb found in this sentence."),
    ];
  const labels = [...new Set(frames.flatMap((frame) => frame.roles.map(({ label }) => label)))]
    .filter((label) => label !== "V")
    .sort();
  return frames.map(({ predicate, roles: found }) => {
    const spans = found
      .filter(({ label }) => label !== "V")
      .map(({ start, end, label }) => ({
        start,
        end,
        label,
        title: roleWords(label),
        words: roleWords(label),
        colour: labels.indexOf(label),
      }));
    spans.push({ start: predicate, end: predicate + 1, label: "verb", predicate: true });
    return el("p", { class: "spans frame" }, ...spanned(tokens, spans));
  });
}

function roleWords(label) {
  const plain = label
    .replace(/^[RC]-/, "")
    .replace(/^ARGM-|^AM-/, "")
    .replace(/^A(?=\d)/, "ARG");
  return ROLES[plain];
}

function chains({ sentences, clusters }) {
  const drawn = sentences.map((tokens, i) => {
    const spans = clusters.flatMap((cluster, c) =>
      cluster
        .filter(({ sentence }) => sentence === i)
        .map(({ start, end }) => ({
          start,
          end,
          label: String(c + 1),
          title: `chain ${c + 1}`,
          colour: c,
        })),
    );
    return el("p", { class: "spans" }, ...spanned(tokens, spans));
  });
  if (!clusters.length)
    return [
      ...drawn,
      el("p", { class: "quiet-words" }, "No two words were found to mean the same."),
    ];
  const list = clusters.map((cluster, c) =>
    el("li", { class: `chain tint-${c % COLOURS}` }, cluster.map(({ text }) => text).join(" — ")),
  );
  return [...drawn, el("ol", { class: "chains" }, ...list)];
}

/** Bars of probabilities, the label that was chosen marked. */
function probable(probabilities, label, words) {
  const rows = Object.entries(probabilities).map(([name, p]) => {
    const bar = el("i", { class: "bar" });
    bar.style.setProperty("--p", p.toFixed(4));
    return el(
      "li",
      { class: name === label ? "right" : null },
      el("span", { class: "word" }, words[name] ?? name),
      el("span", { class: "score" }, percent(p)),
      bar,
    );
  });
  return el("ol", { class: "bars whole" }, ...rows);
}

/** Write tokens with spans around some, which may lie in each other; one that crosses is cut. */
function spanned(tokens, spans) {
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
  const tint = span.predicate ? "predicate" : `tint-${span.colour % COLOURS}`;
  const label = el(
    "span",
    { class: "label", title: span.title },
    span.words ? `${span.label} ${span.words}` : span.label,
  );
  return el(
    "span",
    { class: `span ${tint}${span.rest ? " rest" : ""}` },
    el("span", { class: "inside" }, ...written(span, tokens)),
    label,
  );
}

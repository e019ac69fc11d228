// Displays the results of the six tasks: entities, sentiment, inference, answers, roles, chains.

import { el, joined } from "./dom.js";
import { COLORS } from "./plane.js";
import { percent } from "./scale.js";
import { spanned } from "./spans.js";

const KINDS = {
  ner: (results) => results.flatMap(names),
  sst5: (results) => results.flatMap(sentiment),
  snli: (results) => results.flatMap(inference),
  squad: (results, given) => results.flatMap((result) => answer(result, given)),
  srl: (results) => results.flatMap(roles),
  coref: (results) => results.flatMap(chains),
};

const MAX_QUOTED = 40; // tokens of a text that are repeated in the result
const SENTIMENTS = {
  0: "very negative",
  1: "negative",
  2: "neutral",
  3: "positive",
  4: "very positive",
};
// Labels shown in orange, and in gray.
const NEGATIVE = ["0", "1", "negative", "contradiction"];
const NEUTRAL = ["2", "neutral"];
const INFERENCES = {
  entailment: ["entailment", "follows from the first sentence"],
  neutral: ["neutral", "may or may not be true, given the first sentence"],
  contradiction: ["contradiction", "contradicts the first sentence"],
};
const TYPES = { PER: "person", LOC: "location", ORG: "organization", MISC: "other" };
// Short, because they are shown below short words; the titles explain more.
const ROLES = {
  V: "verb",
  ARG0: "who",
  ARG1: "what",
  ARG2: "to whom",
  ARG3: "from where",
  ARG4: "to where",
  TMP: "when",
  LOC: "where",
  MNR: "how",
  CAU: "why",
  PRP: "purpose",
  PNC: "purpose",
  DIR: "direction",
  NEG: "negation",
  MOD: "modal",
  ADV: "adverbial",
  DIS: "discourse",
  EXT: "how much",
  GOL: "goal",
  COM: "with whom",
  PRD: "predication",
  ADJ: "adjectival",
  LVB: "light verb",
  CXN: "construction",
};

const ROLE_TITLES = {
  ARG0: "agent: who or what does it",
  ARG1: "patient: who or what is affected",
  ARG2: "recipient, instrument or attribute, depending on the verb",
};

/** Return elements that display the results of a task; unknown kinds are shown as JSON. */
export function drawing(kind, results, given) {
  const draw = KINDS[kind];
  return draw ? draw(results, given) : [el("pre", {}, JSON.stringify(results, null, 2))];
}

const quiet = (words) => el("p", { class: "quiet-words" }, words);
const capital = (words) => words[0].toUpperCase() + words.slice(1);

function names({ tokens, entities }) {
  const spans = entities.map(({ start, end, type }) => ({
    start,
    end,
    label: type,
    words: TYPES[type],
    color: colorOf(type, Object.keys(TYPES)),
  }));
  const none = entities.length ? [] : [quiet("No named entities found.")];
  return [el("p", { class: "spans" }, ...spanned(tokens, spans)), ...none];
}

/** A fixed color for a label: its position among known labels, or a hash of its letters. */
function colorOf(label, known) {
  const at = known.indexOf(label);
  if (at >= 0) return at;
  return known.length + [...label].reduce((sum, letter) => sum + letter.codePointAt(0), 0);
}

function sentiment({ tokens, label, probabilities }) {
  const words = SENTIMENTS[label] ?? label;
  const quoted = joined(tokens.slice(0, MAX_QUOTED)) + (tokens.length > MAX_QUOTED ? " …" : "");
  return [
    el("p", { class: "finding verdict" }, el("b", {}, capital(words)), `: “${quoted}”`),
    probabilityBars(probabilities, label, (name) => SENTIMENTS[name] ?? name),
  ];
}

function inference({ sentence2, label, probabilities }) {
  const order = Object.keys(INFERENCES).filter((name) => name in probabilities);
  const sorted = Object.fromEntries(
    [...new Set([...order, ...Object.keys(probabilities)])].map((n) => [n, probabilities[n]]),
  );
  const verdict = INFERENCES[label]?.[1] ?? label;
  return [
    el(
      "p",
      { class: "finding verdict" },
      `“${joined(sentence2.split(" "))}” `,
      el("b", {}, verdict),
      ".",
    ),
    probabilityBars(sorted, label, (name) => INFERENCES[name]?.[0] ?? name),
  ];
}

function answer({ answer: text, start, end, score }, { other }) {
  // Offsets count code points, as in Python.
  const letters = Array.from(other);
  const inside = text && letters.slice(start, end).join("") === text;
  const passage = inside
    ? [letters.slice(0, start).join(""), el("mark", {}, text), letters.slice(end).join("")]
    : [other];
  const sure = typeof score === "number" ? ` (probability ${percent(score)})` : "";
  return [
    el(
      "p",
      { class: "finding verdict" },
      "Answer: ",
      el("b", {}, text || "none found"),
      text ? sure : "",
    ),
    el("p", { class: "passage" }, ...passage),
  ];
}

function roles({ tokens, frames }) {
  if (!frames.length)
    return [el("p", { class: "spans" }, joined(tokens)), quiet("No predicates found.")];
  return frames.map(({ predicate, roles: found }) => {
    const spans = found
      .filter(({ label }) => label !== "V")
      .map(({ start, end, label }) => ({
        start,
        end,
        label,
        words: ROLES[plainRole(label)],
        title: ROLE_TITLES[plainRole(label)],
        color: roleColor(plainRole(label)),
      }));
    spans.push({ start: predicate, end: predicate + 1, label: "verb", predicate: true });
    return el("p", { class: "spans frame" }, ...spanned(tokens, spans));
  });
}

/** A role without the prefixes for continuations (C-), references (R-) and adjuncts. */
function plainRole(label) {
  return label
    .replace(/^[RC]-/, "")
    .replace(/^ARGM-|^AM-/, "")
    .replace(/^A(?=\d)/, "ARG");
}

/** ARG0 to ARG2, time and location have their own colors; all other roles share one. */
function roleColor(role) {
  const numbered = /^ARG([0-2])$/.exec(role);
  if (numbered) return Number(numbered[1]);
  return role === "TMP" ? 3 : role === "LOC" ? 4 : 5;
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
          title: `cluster ${c + 1}`,
          color: c,
          chain: c,
        })),
    );
    return el("span", {}, ...spanned(tokens, spans), " ");
  });
  const text = el("p", { class: "spans" }, ...drawn);
  if (!clusters.length) return [text, quiet("No coreferent mentions found.")];
  const several = clusters.length > 1;
  const list = clusters.map((cluster, c) =>
    el(
      "li",
      { class: `chain tint-${c % COLORS}` },
      el(
        "button",
        {
          type: "button",
          "aria-pressed": "false",
          disabled: !several,
          title: several ? "Highlight this cluster" : null,
          on: { click: (event) => highlight(text, event.currentTarget, c) },
        },
        el("b", {}, String(c + 1)),
        ` ${cluster.map(({ text: words }) => joined(words.split(" "))).join(" – ")}`,
      ),
    ),
  );
  const lead = quiet(
    `${clusters.length} ${several ? "clusters" : "cluster"} of mentions that refer to the same entity` +
      `${several ? "; click one to highlight it" : ""}.`,
  );
  return [text, lead, el("ol", { class: "chains" }, ...list)];
}

/** Highlight one chain, or all of them again. */
function highlight(text, button, chain) {
  const on = button.getAttribute("aria-pressed") !== "true";
  for (const other of button.closest(".chains").querySelectorAll("button"))
    other.setAttribute("aria-pressed", on && other === button);
  for (const span of text.querySelectorAll(".span"))
    span.classList.toggle("dim", on && span.dataset.chain !== String(chain));
}

/** Probability bars; the predicted label is marked. */
function probabilityBars(probabilities, label, wordsOf) {
  const rows = Object.entries(probabilities).map(([name, p]) => {
    const way = NEGATIVE.includes(name) ? " falls" : NEUTRAL.includes(name) ? " even" : "";
    const bar = el("i", { class: `bar${way}` });
    bar.style.setProperty("--p", p.toFixed(4));
    return el(
      "li",
      { class: name === label ? "right" : null },
      el("span", { class: "word" }, wordsOf(name)),
      el("span", { class: "score" }, percent(p)),
      bar,
    );
  });
  return el("ol", { class: "bars whole" }, ...rows);
}

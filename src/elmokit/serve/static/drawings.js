// Draws what the six tasks answer: names, opinions, inference, answers, roles, chains.

import { el, joined } from "./dom.js";
import { COLOURS } from "./plane.js";
import { percent } from "./scale.js";
import { spanned } from "./spans.js";

const KINDS = {
  ner: (results) => results.flatMap(names),
  sst5: (results) => results.flatMap(opinion),
  snli: (results) => results.flatMap(inference),
  squad: (results, given) => results.flatMap((result) => answer(result, given)),
  srl: (results) => results.flatMap(roles),
  coref: (results) => results.flatMap(chains),
};

const QUOTED = 40; // tokens of a text that are said again
const OPINIONS = { 0: "very bad", 1: "bad", 2: "neutral", 3: "good", 4: "very good" };
// What is drawn in orange, and in grey.
const FALLING = ["0", "1", "negative", "contradiction"];
const EVEN = ["2", "neutral"];
const INFERENCES = {
  entailment: ["it follows", "follows from the first sentence"],
  neutral: ["neither", "may be true or not: the first sentence does not say"],
  contradiction: ["it contradicts", "contradicts the first sentence"],
};
const TYPES = { PER: "person", LOC: "place", ORG: "organisation", MISC: "other name" };
// Short, since they stand under short words; the titles say more.
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
  PRD: "as what",
  ADJ: "which",
  LVB: "light verb",
  CXN: "than what",
};

const MORE = {
  ARG0: "who or what does it",
  ARG1: "who or what it is done to",
  ARG2: "to whom, with what, or as what: it depends on the verb",
};

/** Return the elements that show the results of a task; those of an unknown kind as they are. */
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
    colour: colourOf(type, Object.keys(TYPES)),
  }));
  const none = entities.length ? [] : [quiet("No names found in this sentence.")];
  return [el("p", { class: "spans" }, ...spanned(tokens, spans)), ...none];
}

/** A colour that a label keeps, in whatever text: its place among known ones, else of its letters. */
function colourOf(label, known) {
  const at = known.indexOf(label);
  if (at >= 0) return at;
  return known.length + [...label].reduce((sum, letter) => sum + letter.codePointAt(0), 0);
}

function opinion({ tokens, label, probabilities }) {
  const words = OPINIONS[label] ?? label;
  const quoted = joined(tokens.slice(0, QUOTED)) + (tokens.length > QUOTED ? " …" : "");
  return [
    el("p", { class: "finding verdict" }, el("b", {}, capital(words)), `: “${quoted}”`),
    probable(probabilities, label, (name) => OPINIONS[name] ?? name),
  ];
}

function inference({ sentence2, label, probabilities }) {
  const order = Object.keys(INFERENCES).filter((name) => name in probabilities);
  const sorted = Object.fromEntries(
    [...new Set([...order, ...Object.keys(probabilities)])].map((n) => [n, probabilities[n]]),
  );
  const said = INFERENCES[label]?.[1] ?? label;
  return [
    el(
      "p",
      { class: "finding verdict" },
      `“${joined(sentence2.split(" "))}” `,
      el("b", {}, said),
      ".",
    ),
    probable(sorted, label, (name) => INFERENCES[name]?.[0] ?? name),
  ];
}

function answer({ answer: text, start, end, score }, { other }) {
  // Places are counted in characters as Python counts them.
  const letters = Array.from(other);
  const inside = text && letters.slice(start, end).join("") === text;
  const passage = inside
    ? [letters.slice(0, start).join(""), el("mark", {}, text), letters.slice(end).join("")]
    : [other];
  const sure = typeof score === "number" ? `, with a probability of ${percent(score)}` : "";
  return [
    el(
      "p",
      { class: "finding verdict" },
      "The answer: ",
      el("b", {}, text || "none found"),
      text ? sure : "",
    ),
    el("p", { class: "passage" }, ...passage),
  ];
}

function roles({ tokens, frames }) {
  if (!frames.length)
    return [el("p", { class: "spans" }, joined(tokens)), quiet("No verb found in this sentence.")];
  return frames.map(({ predicate, roles: found }) => {
    const spans = found
      .filter(({ label }) => label !== "V")
      .map(({ start, end, label }) => ({
        start,
        end,
        label,
        words: ROLES[plainRole(label)],
        title: MORE[plainRole(label)],
        colour: roleColour(plainRole(label)),
      }));
    spans.push({ start: predicate, end: predicate + 1, label: "verb", predicate: true });
    return el("p", { class: "spans frame" }, ...spanned(tokens, spans));
  });
}

/** A role without the marks of a piece (C-), of a relative word (R-) and of an adjunct. */
function plainRole(label) {
  return label
    .replace(/^[RC]-/, "")
    .replace(/^ARGM-|^AM-/, "")
    .replace(/^A(?=\d)/, "ARG");
}

/** Who, what and to whom have colours of their own; time has one, and all else one together. */
function roleColour(role) {
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
          title: `chain ${c + 1}`,
          colour: c,
          chain: c,
        })),
    );
    return el("span", {}, ...spanned(tokens, spans), " ");
  });
  const text = el("p", { class: "spans" }, ...drawn);
  if (!clusters.length) return [text, quiet("No two words were found to mean the same.")];
  const several = clusters.length > 1;
  const list = clusters.map((cluster, c) =>
    el(
      "li",
      { class: `chain tint-${c % COLOURS}` },
      el(
        "button",
        {
          type: "button",
          "aria-pressed": "false",
          disabled: !several,
          title: several ? "Show this chain alone" : null,
          on: { click: (event) => alone(text, event.currentTarget, c) },
        },
        el("b", {}, String(c + 1)),
        ` ${cluster.map(({ text: words }) => joined(words.split(" "))).join(" – ")}`,
      ),
    ),
  );
  const lead = quiet(
    `${clusters.length} ${several ? "chains" : "chain"} of words that mean the same person or ` +
      `thing${several ? "; press one to see it alone" : ""}.`,
  );
  return [text, lead, el("ol", { class: "chains" }, ...list)];
}

/** Let only one chain be coloured, or all of them again. */
function alone(text, button, chain) {
  const on = button.getAttribute("aria-pressed") !== "true";
  for (const other of button.closest(".chains").querySelectorAll("button"))
    other.setAttribute("aria-pressed", on && other === button);
  for (const span of text.querySelectorAll(".span"))
    span.classList.toggle("dim", on && span.dataset.chain !== String(chain));
}

/** Bars of probabilities, the label that was chosen marked. */
function probable(probabilities, label, wordsOf) {
  const rows = Object.entries(probabilities).map(([name, p]) => {
    const way = FALLING.includes(name) ? " falls" : EVEN.includes(name) ? " even" : "";
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

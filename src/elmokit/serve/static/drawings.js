// Renders the results of the six tasks: entities, sentiment, inference, answers, roles, clusters.

import { el, joinTokens } from "./dom.js";
import { COLORS } from "./plane.js";
import { formatPercent } from "./scale.js";
import { renderSpans } from "./spans.js";

const RENDERERS = {
  ner: (results) => results.flatMap(renderEntities),
  sst5: (results) => results.flatMap(renderSentiment),
  snli: (results) => results.flatMap(renderInference),
  squad: (results, input) => results.flatMap((result) => renderAnswer(result, input)),
  srl: (results) => results.flatMap(renderRoles),
  coref: (results) => results.flatMap(renderChains),
};

const MAX_QUOTED = 40; // tokens of the input that are quoted in the result
const SENTIMENTS = {
  0: "very negative",
  1: "negative",
  2: "neutral",
  3: "positive",
  4: "very positive",
};
// Labels of orange bars, and labels of gray bars.
const NEGATIVE = ["0", "1", "negative", "contradiction"];
const NEUTRAL = ["2", "neutral"];
const INFERENCES = {
  entailment: ["entailment", "follows from the premise"],
  neutral: ["neutral", "may or may not be true, given the premise"],
  contradiction: ["contradiction", "contradicts the premise"],
};
const TYPES = { PER: "person", LOC: "location", ORG: "organization", MISC: "other" };
// These names are short, because they are shown below short words. The titles explain more.
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

/** Return elements that display the results of a task; those of custom tasks are shown as JSON. */
export function renderResults(kind, results, input) {
  const draw = RENDERERS[kind];
  return draw ? draw(results, input) : [el("pre", {}, JSON.stringify(results, null, 2))];
}

const mutedText = (words) => el("p", { class: "muted" }, words);
const capitalize = (words) => words[0].toUpperCase() + words.slice(1);

function renderEntities({ tokens, entities }) {
  const spans = entities.map(({ start, end, type }) => ({
    start,
    end,
    label: type,
    words: TYPES[type],
    color: colorOf(type, Object.keys(TYPES)),
  }));
  const none = entities.length ? [] : [mutedText("No named entities found.")];
  return [el("p", { class: "spans" }, ...renderSpans(tokens, spans)), ...none];
}

/** Return the color of a label: its position among the known labels, or a hash of its letters. */
function colorOf(label, known) {
  const index = known.indexOf(label);
  if (index >= 0) return index;
  return known.length + [...label].reduce((sum, letter) => sum + letter.codePointAt(0), 0);
}

function renderSentiment({ tokens, label, probabilities }) {
  const words = SENTIMENTS[label] ?? label;
  const quoted =
    joinTokens(tokens.slice(0, MAX_QUOTED)) + (tokens.length > MAX_QUOTED ? " …" : "");
  return [
    el("p", { class: "finding verdict" }, el("b", {}, capitalize(words)), `: “${quoted}”`),
    probabilityBars(probabilities, label, (name) => SENTIMENTS[name] ?? name),
  ];
}

function renderInference({ sentence2, label, probabilities }) {
  const order = Object.keys(INFERENCES).filter((name) => name in probabilities);
  const sorted = Object.fromEntries(
    [...new Set([...order, ...Object.keys(probabilities)])].map((n) => [n, probabilities[n]]),
  );
  const verdict = INFERENCES[label]?.[1] ?? label;
  return [
    el(
      "p",
      { class: "finding verdict" },
      `“${joinTokens(sentence2.split(" "))}” `,
      el("b", {}, verdict),
      ".",
    ),
    probabilityBars(sorted, label, (name) => INFERENCES[name]?.[0] ?? name),
  ];
}

function renderAnswer({ answer: text, start, end, score }, { other }) {
  // Offsets count code points, as in Python.
  const letters = Array.from(other);
  const isInPassage = text && letters.slice(start, end).join("") === text;
  const passage = isInPassage
    ? [letters.slice(0, start).join(""), el("mark", {}, text), letters.slice(end).join("")]
    : [other];
  const probability = typeof score === "number" ? ` (probability ${formatPercent(score)})` : "";
  return [
    el(
      "p",
      { class: "finding verdict" },
      "Answer: ",
      el("b", {}, text || "none found"),
      text ? probability : "",
    ),
    el("p", { class: "passage" }, ...passage),
  ];
}

function renderRoles({ tokens, frames }) {
  if (!frames.length)
    return [el("p", { class: "spans" }, joinTokens(tokens)), mutedText("No predicates found.")];
  return frames.map(({ predicate, roles: frameRoles }) => {
    const spans = frameRoles
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
    return el("p", { class: "spans frame" }, ...renderSpans(tokens, spans));
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

function renderChains({ sentences, clusters }) {
  const rendered = sentences.map((tokens, i) => {
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
    return el("span", {}, ...renderSpans(tokens, spans), " ");
  });
  const text = el("p", { class: "spans" }, ...rendered);
  if (!clusters.length) return [text, mutedText("No coreferent mentions found.")];
  const hasSeveral = clusters.length > 1;
  const list = clusters.map((cluster, c) =>
    el(
      "li",
      { class: `chain tint-${c % COLORS}` },
      el(
        "button",
        {
          type: "button",
          "aria-pressed": "false",
          disabled: !hasSeveral,
          title: hasSeveral ? "Highlight this cluster" : null,
          on: { click: (event) => highlight(text, event.currentTarget, c) },
        },
        el("b", {}, String(c + 1)),
        ` ${cluster.map(({ text: words }) => joinTokens(words.split(" "))).join(" – ")}`,
      ),
    ),
  );
  const summary = mutedText(
    `${clusters.length} ${hasSeveral ? "clusters" : "cluster"} ` +
      "of mentions that refer to the same entity" +
      `${hasSeveral ? "; click one to highlight it" : ""}.`,
  );
  return [text, summary, el("ol", { class: "chains" }, ...list)];
}

/** Highlight a cluster, or stop highlighting it if it is already highlighted. */
function highlight(text, button, chain) {
  const isSelected = button.getAttribute("aria-pressed") !== "true";
  for (const other of button.closest(".chains").querySelectorAll("button"))
    other.setAttribute("aria-pressed", isSelected && other === button);
  for (const span of text.querySelectorAll(".span"))
    span.classList.toggle("dim", isSelected && span.dataset.chain !== String(chain));
}

/** Return probability bars, with a mark on the bar of the predicted label. */
function probabilityBars(probabilities, label, labelOf) {
  const rows = Object.entries(probabilities).map(([name, p]) => {
    const toneClass = NEGATIVE.includes(name) ? " negative" : NEUTRAL.includes(name) ? " neutral" : "";
    const bar = el("i", { class: `bar${toneClass}` });
    bar.style.setProperty("--p", p.toFixed(4));
    return el(
      "li",
      { class: name === label ? "match" : null },
      el("span", { class: "word" }, labelOf(name)),
      el("span", { class: "score" }, formatPercent(p)),
      bar,
    );
  });
  return el("ol", { class: "bars probabilities" }, ...rows);
}

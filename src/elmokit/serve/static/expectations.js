// Expectations: predictions and surprisal of the two language models.

import { byId, el, examples, field, joinTokens, rovingFocus } from "./dom.js";
import { EXPECTATIONS } from "./examples.js";
import { toBits, formatPercent, formatRounded } from "./scale.js";
import { RequestRunner, request } from "./service.js";

const MAX_LISTED = 8; // predictions listed for the selected position
const MAX_IN_STRIP = 3; // predictions shown above and below each token
const MAX_BITS = 16; // surprisal in bits at which a bar has its full height

export function expectations(app) {
  byId("expectations-help").hidden = app.model.language_model;
  byId("expectations-body").hidden = !app.model.language_model;
  if (!app.model.language_model) return { show() {} };
  const runner = new RequestRunner(byId("expectations-result"), byId("expectations-notice"));
  const text = field(byId("expectations-text"), (x) => app.set({ x, t: null, w: null }, "text"));
  examples(byId("expectations-examples"), EXPECTATIONS, ({ text: x, word: w }) =>
    app.set({ x, w, t: null }),
  );
  const strip = byId("expectations-strip");
  const choose = (item, join) => app.set({ t: item.dataset.token, w: null }, join);
  strip.addEventListener("click", (event) => {
    const place = event.target.closest(".place");
    if (place) choose(place, null);
  });
  rovingFocus(strip, ".place", (_, item) => choose(item, "place"));

  let drawn = null;
  function draw({ score, predictions }, values) {
    const k = chosenToken(values, score.tokens);
    if (drawn !== score) {
      drawn = score;
      strip.replaceChildren(
        ...score.tokens.map((token, i) => column(token, i, score, predictions.get(i))),
      );
    }
    for (const item of strip.children) {
      const isSelected = Number(item.dataset.token) === k;
      item.setAttribute("aria-checked", isSelected);
      item.setAttribute("tabindex", isSelected ? "0" : "-1");
      if (isSelected) scrollToColumn(item);
    }
    finding(score);
    showPredictions(score, predictions.get(k), k);
  }

  function finding(score) {
    const perplexity = formatRounded(score.perplexity);
    const forward = formatRounded(score.forward_perplexity);
    const backward = formatRounded(score.backward_perplexity);
    const unknown = score.tokens.filter((_, i) => score.unknown[i]);
    byId("expectations-finding").replaceChildren(
      el("b", {}, `Perplexity ${perplexity}.`),
      ` On average, predicting a word was as hard as choosing among ${perplexity} equally likely ` +
        `words (forward ${forward}, backward ${backward}).` +
        (unknown.length
          ? ` Not in the vocabulary, scored as unknown: ${unknown.join(", ")}.`
          : ""),
    );
  }

  function showPredictions(score, prediction, k) {
    const word = score.tokens[k];
    byId("expectations-place").replaceChildren("Predictions for ", el("em", {}, word));
    const before = score.tokens.slice(0, k);
    const after = score.tokens.slice(k + 1);
    byId("expectations-left").textContent = before.length
      ? `${joinTokens(before.slice(-7))} …`
      : "(start of sentence) …";
    byId("expectations-right").textContent = after.length
      ? `… ${joinTokens(after.slice(0, 7))}`
      : "… (end of sentence)";
    byId("expectations-both").textContent =
      `${joinTokens(before.slice(-3))} … ${joinTokens(after.slice(0, 3))}`.trim();
    for (const side of ["forward", "backward", "combined"]) {
      byId(`expectations-${side}`).replaceChildren(
        ...(prediction?.[side] ?? []).slice(0, MAX_LISTED).map((candidate) => bar(candidate, word)),
      );
    }
  }

  return {
    show(values) {
      const x = values.x ?? EXPECTATIONS[0].text;
      text.show(x);
      const input = x.replace(/\s+/g, " ").trim();
      if (!input) return runner.cancel("Enter a sentence, or select an example.");
      const maxPositions = app.service.limits.positions;
      const work = async (signal) => {
        const model = app.model.id;
        const scores = await request("v1/score", { sentences: [input], model }, signal);
        const score = scores.sentences[0];
        const body = { sentence: input, k: MAX_LISTED, model };
        // If a sentence exceeds the limit, request only the selected position.
        if (score.tokens.length > maxPositions)
          body.positions = [chosenToken(app.values(), score.tokens)];
        const response = await request("v1/substitutes", body, signal);
        return {
          score,
          predictions: new Map(response.positions.map((p) => [p.position, p])),
          warnings: response.warnings,
        };
      };
      const fitsLimit = input.length / 2 < maxPositions; // the sentence cannot exceed the limit
      runner.run(JSON.stringify([input, fitsLimit ? null : values.t]), work, (response) => {
        runner.notify(response.warnings.join(" ") || null);
        runner.result.classList.remove("stale");
        draw(response, app.values());
      });
    },
  };
}

function chosenToken(values, tokens) {
  const k = Number(values.t ?? -1);
  if (tokens[k] !== undefined) return k;
  const word = values.w ?? (values.x === undefined ? EXPECTATIONS[0].word : null);
  return Math.max(
    0,
    tokens.findIndex((token) => token.toLowerCase() === word),
  );
}

function column(token, i, score, prediction) {
  const forward = toBits(score.forward[i]);
  const backward = toBits(score.backward[i]);
  const bitsOf = (value) => value.toFixed(1);
  const label =
    `${token}: surprisal ${bitsOf(forward)} bits forward, ${bitsOf(backward)} bits backward`;
  return el(
    "div",
    { class: "place", role: "radio", "data-token": i, "aria-label": label, title: label },
    predictedWords(prediction?.forward, token),
    surprisalBar(forward, "forward"),
    el("span", { class: "word" }, token),
    surprisalBar(backward, "backward"),
    predictedWords(prediction?.backward, token),
  );
}

function predictedWords(list, token) {
  const shown = (list ?? []).slice(0, MAX_IN_STRIP);
  return el(
    "span",
    { class: "predictions" },
    ...shown.map(({ word }) => el("span", { class: word === token ? "match" : null }, word)),
  );
}

function surprisalBar(value, side) {
  const bar = el("i", { class: `surprisal ${side}` });
  bar.style.setProperty("--h", Math.min(1, value / MAX_BITS).toFixed(3));
  return el(
    "span",
    { class: `surprisal-track ${side}` },
    bar,
    el("span", { class: "bits" }, value.toFixed(1)),
  );
}

function bar({ word, probability }, target) {
  const line = el("i", { class: "bar" });
  line.style.setProperty("--p", probability.toFixed(4));
  return el(
    "li",
    { class: word === target ? "match" : null },
    el("span", { class: "word" }, word),
    el("span", { class: "score" }, formatPercent(probability)),
    line,
  );
}

/** Scroll the strip, but not the page, so that a column is visible. */
function scrollToColumn(item) {
  const box = item.closest(".scroll");
  const left = item.offsetLeft - box.offsetLeft;
  if (left < box.scrollLeft) box.scrollLeft = left - 20;
  else if (left + item.offsetWidth > box.scrollLeft + box.clientWidth)
    box.scrollLeft = left + item.offsetWidth - box.clientWidth + 20;
}

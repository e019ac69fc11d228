// Expectations: predictions and surprisal of the two language models.

import { byId, el, examples, field, joined, roving } from "./dom.js";
import { EXPECTATIONS } from "./examples.js";
import { bits, percent, rounded } from "./scale.js";
import { RequestRunner, ask } from "./service.js";

const MAX_LISTED = 8; // predictions listed for the selected position
const MAX_IN_STRIP = 3; // predictions shown above and below each token
const MAX_BITS = 16; // surprisal in bits of a full bar

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
  roving(strip, ".place", (_, item) => choose(item, "place"));

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
      const on = Number(item.dataset.token) === k;
      item.setAttribute("aria-checked", on);
      item.setAttribute("tabindex", on ? "0" : "-1");
      if (on) scrollToColumn(item);
    }
    finding(score);
    showPredictions(score, predictions.get(k), k);
  }

  function finding(score) {
    const whole = rounded(score.perplexity);
    const [left, right] = [rounded(score.forward_perplexity), rounded(score.backward_perplexity)];
    const unknown = score.tokens.filter((_, i) => score.unknown[i]);
    byId("expectations-finding").replaceChildren(
      el("b", {}, `Perplexity ${whole}.`),
      ` On average, predicting a word was as hard as choosing among ${whole} equally likely ` +
        `words (forward ${left}, backward ${right}).` +
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
      ? `${joined(before.slice(-7))} …`
      : "(start of sentence) …";
    byId("expectations-right").textContent = after.length
      ? `… ${joined(after.slice(0, 7))}`
      : "… (end of sentence)";
    byId("expectations-both").textContent =
      `${joined(before.slice(-3))} … ${joined(after.slice(0, 3))}`.trim();
    for (const side of ["forward", "backward", "combined"]) {
      byId(`expectations-${side}`).replaceChildren(
        ...(prediction?.[side] ?? []).slice(0, MAX_LISTED).map((guess) => bar(guess, word)),
      );
    }
  }

  return {
    show(values) {
      const x = values.x ?? EXPECTATIONS[0].text;
      text.show(x);
      const given = x.replace(/\s+/g, " ").trim();
      if (!given) return runner.cancel("Enter a sentence, or select an example.");
      const maxPositions = app.served.limits.positions;
      const work = async (signal) => {
        const model = app.model.id;
        const score = (await ask("v1/score", { sentences: [given], model }, signal)).sentences[0];
        const body = { sentence: given, k: MAX_LISTED, model };
        // A long sentence exceeds the limit: then request only the selected position.
        if (score.tokens.length > maxPositions)
          body.positions = [chosenToken(app.values(), score.tokens)];
        const answer = await ask("v1/substitutes", body, signal);
        return {
          score,
          predictions: new Map(answer.positions.map((p) => [p.position, p])),
          warnings: answer.warnings,
        };
      };
      const whole = given.length / 2 < maxPositions; // then it cannot exceed the limit
      runner.run(JSON.stringify([given, whole ? null : values.t]), work, (answer) => {
        runner.notify(answer.warnings.join(" ") || null);
        runner.result.classList.remove("stale");
        draw(answer, app.values());
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
  const forward = bits(score.forward[i]);
  const backward = bits(score.backward[i]);
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
    { class: "guesses" },
    ...shown.map(({ word }) => el("span", { class: word === token ? "right" : null }, word)),
  );
}

function surprisalBar(value, side) {
  const bar = el("i", { class: `rise ${side}` });
  bar.style.setProperty("--h", Math.min(1, value / MAX_BITS).toFixed(3));
  return el(
    "span",
    { class: `well ${side}` },
    bar,
    el("span", { class: "bits" }, value.toFixed(1)),
  );
}

function bar({ word, probability }, meant) {
  const line = el("i", { class: "bar" });
  line.style.setProperty("--p", probability.toFixed(4));
  return el(
    "li",
    { class: word === meant ? "right" : null },
    el("span", { class: "word" }, word),
    el("span", { class: "score" }, percent(probability)),
    line,
  );
}

/** Scroll only the strip until a column is visible. */
function scrollToColumn(item) {
  const box = item.closest(".scroll");
  const left = item.offsetLeft - box.offsetLeft;
  if (left < box.scrollLeft) box.scrollLeft = left - 20;
  else if (left + item.offsetWidth > box.scrollLeft + box.clientWidth)
    box.scrollLeft = left + item.offsetWidth - box.clientWidth + 20;
}

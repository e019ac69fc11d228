// DOM helpers. All text is inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** Create an element; `children` are elements or strings. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on")
      for (const [type, handler] of Object.entries(value)) element.addEventListener(type, handler);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Delay `work` until there was no input for a while. */
export function debounced(work, milliseconds = 350) {
  let timer = null;
  const later = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = null;
      work(...given);
    }, milliseconds);
  };
  later.waiting = () => timer !== null;
  return later;
}

/** Connect an input field with the view: call `changed` after typing, `show` to set its text. */
export function field(input, changed) {
  const later = debounced(() => changed(input.value));
  input.addEventListener("input", () => {
    grow(input);
    later();
  });
  input.form?.addEventListener("submit", (event) => event.preventDefault());
  return {
    show(text) {
      if (later.waiting() || input.value === text) return;
      input.value = text;
      grow(input);
    },
  };
}

/** Fit the height of a text area to its text, up to a limit. */
export function grow(area) {
  if (area.tagName !== "TEXTAREA" || area.offsetParent === null) return;
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight + 2, 260)}px`;
}

/**
 * Move the focus among the items of a group with arrow keys, Home and End (roving tabindex).
 *
 * If given, `chosen(index, item)` is called after each move.
 */
export function roving(group, selector, chosen = null) {
  group.addEventListener("keydown", (event) => {
    const items = [...group.querySelectorAll(selector)];
    const at = items.indexOf(document.activeElement);
    if (at < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    let to = step === undefined ? null : (at + step + items.length) % items.length;
    if (event.key === "Home") to = 0;
    if (event.key === "End") to = items.length - 1;
    if (to === null) return;
    event.preventDefault();
    for (const item of items) item.setAttribute("tabindex", item === items[to] ? "0" : "-1");
    items[to].focus();
    chosen?.(to, items[to]);
  });
}

/** A group of radio buttons; `choices` are [value, label, title]. */
export function choice(group, choices, changed) {
  group.replaceChildren(
    ...choices.map(([value, words, title]) =>
      el(
        "button",
        {
          type: "button",
          role: "radio",
          class: "option",
          "data-value": value,
          title,
          on: { click: () => changed(value, false) },
        },
        words,
      ),
    ),
  );
  if (!group.dataset.ready) {
    group.dataset.ready = "yes";
    roving(group, ".option", (_, item) => group.choose(item.dataset.value));
  }
  group.choose = (value) => changed(value, true);
  return (value) => {
    for (const item of group.children) {
      const on = item.dataset.value === String(value);
      item.setAttribute("aria-checked", on);
      item.setAttribute("tabindex", on ? "0" : "-1");
    }
    if (!group.querySelector('[tabindex="0"]')) group.firstChild?.setAttribute("tabindex", "0");
  };
}

/** A row of buttons with examples. */
export function examples(row, list, picked) {
  row.replaceChildren(
    el("span", { class: "examples-word" }, "Examples"),
    ...list.map((example) =>
      el(
        "button",
        { type: "button", class: "example", on: { click: () => picked(example) } },
        example.name,
      ),
    ),
  );
}

/** A sentence with one highlighted token; long sentences are shortened around it. */
export function quote(tokens, position, around = Infinity) {
  const first = Math.max(0, position - around);
  const end = Math.min(tokens.length, position + around + 1);
  const before = joined(tokens.slice(first, position));
  const after = joined(tokens.slice(position + 1, end));
  return [
    (first > 0 ? "… " : "") + before + (before && spaced(tokens[position]) ? " " : ""),
    el("b", { class: "meant" }, tokens[position]),
    (after && spaced(tokens[position + 1]) ? " " : "") + after + (end < tokens.length ? " …" : ""),
  ];
}

const CLOSING = /^([.,;:!?%)\]}’”]|'s|n't|'[a-z]{1,2})$/i;
export const spaced = (token) => !CLOSING.test(token ?? "");

/** Join tokens without spaces before punctuation. */
export function joined(tokens) {
  return tokens.map((token, i) => (i > 0 && spaced(token) ? ` ${token}` : token)).join("");
}

export const lines = (text) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);

/** Read or write browser storage; null if it is not available. */
export function stored(kind, key, value) {
  try {
    const store = kind === "session" ? sessionStorage : localStorage;
    if (value !== undefined) store.setItem(key, value);
    return store.getItem(key);
  } catch {
    return null;
  }
}

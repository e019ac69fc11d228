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

/** Return a function that calls `work` once no further call has followed for a while. */
export function debounced(work, milliseconds = 350) {
  let timer = null;
  const later = (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = null;
      work(...args);
    }, milliseconds);
  };
  later.waiting = () => timer !== null;
  return later;
}

/** Connect an input field to the view: `onChange` is called after typing, `show` sets the text. */
export function field(input, onChange) {
  const later = debounced(() => onChange(input.value));
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
 * `onMove(index, item)` is called after each move.
 */
export function rovingFocus(group, selector, onMove = null) {
  group.addEventListener("keydown", (event) => {
    const items = [...group.querySelectorAll(selector)];
    const index = items.indexOf(document.activeElement);
    if (index < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    let next = step === undefined ? null : (index + step + items.length) % items.length;
    if (event.key === "Home") next = 0;
    if (event.key === "End") next = items.length - 1;
    if (next === null) return;
    event.preventDefault();
    for (const item of items) item.setAttribute("tabindex", item === items[next] ? "0" : "-1");
    items[next].focus();
    onMove?.(next, items[next]);
  });
}

/**
 * Create a group of radio buttons; `options` are [value, label, title].
 *
 * Return a function that marks the option with a value as selected.
 */
export function radioGroup(group, options, onChange) {
  group.replaceChildren(
    ...options.map(([value, label, title]) =>
      el(
        "button",
        {
          type: "button",
          role: "radio",
          class: "option",
          "data-value": value,
          title,
          on: { click: () => onChange(value, false) },
        },
        label,
      ),
    ),
  );
  if (!group.dataset.ready) {
    group.dataset.ready = "yes";
    rovingFocus(group, ".option", (_, item) => group.choose(item.dataset.value));
  }
  group.choose = (value) => onChange(value, true);
  return (value) => {
    for (const item of group.children) {
      const isSelected = item.dataset.value === String(value);
      item.setAttribute("aria-checked", isSelected);
      item.setAttribute("tabindex", isSelected ? "0" : "-1");
    }
    if (!group.querySelector('[tabindex="0"]')) group.firstChild?.setAttribute("tabindex", "0");
  };
}

/** Create a row of buttons with examples. */
export function examples(row, list, onPick) {
  row.replaceChildren(
    el("span", { class: "examples-word" }, "Examples"),
    ...list.map((example) =>
      el(
        "button",
        { type: "button", class: "example", on: { click: () => onPick(example) } },
        example.name,
      ),
    ),
  );
}

/** Return a sentence with one highlighted token and at most `context` tokens on each side. */
export function quote(tokens, position, context = Infinity) {
  const first = Math.max(0, position - context);
  const end = Math.min(tokens.length, position + context + 1);
  const left = joinTokens(tokens.slice(first, position));
  const right = joinTokens(tokens.slice(position + 1, end));
  return [
    (first > 0 ? "… " : "") + left + (left && needsSpaceBefore(tokens[position]) ? " " : ""),
    el("b", { class: "target" }, tokens[position]),
    (right && needsSpaceBefore(tokens[position + 1]) ? " " : "") +
      right +
      (end < tokens.length ? " …" : ""),
  ];
}

const CLOSING = /^([.,;:!?%)\]}’”]|'s|n't|'[a-z]{1,2})$/i;
export const needsSpaceBefore = (token) => !CLOSING.test(token ?? "");

/** Join tokens without spaces before punctuation. */
export function joinTokens(tokens) {
  return tokens
    .map((token, i) => (i > 0 && needsSpaceBefore(token) ? ` ${token}` : token))
    .join("");
}

export const splitLines = (text) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);

/** Read or write browser storage. Return null if the storage is not available. */
export function browserStorage(kind, key, value) {
  try {
    const store = kind === "session" ? sessionStorage : localStorage;
    if (value !== undefined) store.setItem(key, value);
    return store.getItem(key);
  } catch {
    return null;
  }
}

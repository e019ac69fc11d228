// The whole view is in the address: #panel?key=value&... can be sent to someone.
//
// It stands after the #, which browsers keep to themselves: sentences are in no log of a proxy.

const LONGEST = 12000; // characters of an address that still travel well
const PAUSE = 350; // milliseconds between two writings: browsers stop a page that writes more often

const left = new Map(); // what each panel was left with
let place = history.state?.panel ? history.state : read();
let last = null; // what the newest step of the history was made by
let unwritten = null;

/** Return where we are: the panel and its parameters. */
export function here() {
  return place;
}

/** Return the parameters of a panel, which may be hidden now. */
export function valuesOf(panel) {
  return panel === place.panel ? place.values : (left.get(panel) ?? {});
}

/**
 * Go to a panel, or change parameters of this one; a null takes one away.
 *
 * Steps with the same `join` one after the other are one step back: a slider that is drawn, a
 * text that is typed.
 */
export function go(panel, changes, join = null) {
  const values = { ...valuesOf(panel) };
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined) delete values[key];
    else values[key] = String(value);
  }
  const joined = join !== null && join === last;
  if (!joined) settle();
  left.set(place.panel, place.values);
  place = { panel, values };
  last = join;
  if (joined) unwritten ??= setTimeout(settle, PAUSE);
  else write("pushState");
  document.dispatchEvent(new Event("place"));
}

/** Write what is not in the address yet. */
export function settle() {
  if (unwritten === null) return;
  clearTimeout(unwritten);
  unwritten = null;
  write("replaceState");
}

/** Whether the address holds the view; a long text does not fit, and stays in this window. */
export function fits() {
  return address().length <= LONGEST;
}

function write(how) {
  if (fits()) history[how](null, "", address());
  else history[how](place, "", `#${place.panel}`);
}

function address() {
  const query = new URLSearchParams(place.values).toString();
  return `#${place.panel}${query ? `?${query}` : ""}`;
}

function read() {
  const [panel, query] = location.hash.slice(1).split(/\?(.*)/s);
  return { panel: panel || "start", values: Object.fromEntries(new URLSearchParams(query ?? "")) };
}

window.addEventListener("popstate", (event) => {
  clearTimeout(unwritten);
  unwritten = null;
  last = null;
  left.set(place.panel, place.values);
  place = event.state?.panel ? event.state : read();
  document.dispatchEvent(new Event("place"));
});

// What a page is asked for in its address, such as a filter: a link to the page has it too.

/** Show the same page with these values in its address; empty ones are left out. `page`: `#/agents`. */
export function ask(page, values) {
  const next = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  history.replaceState(null, "", `${page}${next.size ? `?${next}` : ""}`);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

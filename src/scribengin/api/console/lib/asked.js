// What a page is asked for in its address, such as a filter: a link to the page has it too.
import {html, useState} from "./html.js";

/** Show the same page with these values in its address; empty ones are left out. `page`: `#/agents`. */
export function ask(page, values) {
  const next = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  history.replaceState(null, "", `${page}${next.size ? `?${next}` : ""}`);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** A field whose text counts when its user has finished it; until then the page does not replace it. */
export function Field({label, value, onValue}) {
  const [draft, write] = useState(null);
  return html`<label>${label} <input type="search" value=${draft ?? value} onInput=${(event) => write(event.target.value)} onChange=${(event) => { write(null); onValue(event.target.value); }}/></label>`;
}

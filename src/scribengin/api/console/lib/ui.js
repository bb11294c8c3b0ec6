// Small parts that pages share.
import {html, useEffect, useRef, useState} from "./html.js";
import {ago, clock, moment} from "./format.js";
import {useAge} from "./live.js";

const TONES = {
  running: "good", finished: "good", up: "good", done: "good", ready: "good", leads: "good", healthy: "good",
  failed: "bad", degraded: "bad", away: "bad", refused: "bad", full: "bad",
  recovering: "warn", starting: "warn", stopping: "warn", draining: "warn", paused: "warn", waiting: "warn", created: "warn",
};

/** The good, warn, bad or quiet look of a state. */
export const tone = (state) => TONES[state] || "quiet";

/** A state as a word with a mark; the mark is a shape too, not only a colour. `look`: another one than that of the word. */
export const State = ({state, look = tone(state)}) => html`<span class="state ${look}">${state}</span>`;

/** A time, with its age as the title. */
export const Moment = ({at}) => html`<time title=${at ? `${ago(at)} ago` : ""}>${moment(at)}</time>`;

/** A problem: what is wrong, and what to do. */
export const Fault = ({error}) => error && html`<div class="fault" role="alert">
  <p>${error.message}</p>
  ${error.remedy && html`<p class="remedy">${error.remedy}</p>`}
  ${(error.problems || []).map((each) => html`<p class="remedy">${each.pointer || each.code} ${each.detail || each.message}</p>`)}
</div>`;

/** An answer of useAnswer: its fault, or that it is under way, or what `children` makes of its data; and how old it is after a failure. */
export function Answer({of, children, empty}) {
  const age = useAge(of.error && of.at ? of.at : null);
  if (of.data === null) return of.error ? html`<${Fault} error=${of.error}/>` : html`<p class="quiet" aria-busy="true">asking the master …</p>`;
  const nothing = empty && Array.isArray(of.data) && of.data.length === 0;
  return html`${age !== null && html`<p class="old" role="status">as of ${clock(of.at / 1000)}: ${of.error.message}</p>`}
    ${nothing ? html`<p class="quiet">${empty}</p>` : children(of.data)}`;
}

/** A table. `columns`: [{name, of: row => cell, kind: "number"}]; `key`: row => its identity; `go`: row => a link. */
export function Table({caption, columns, rows, keyOf}) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <caption class="unseen">${caption}</caption>
    <thead><tr>${columns.map((each) => html`<th scope="col" class=${each.kind || ""}>${each.name}</th>`)}</tr></thead>
    <tbody>${rows.map((row, nth) => html`<tr key=${keyOf ? keyOf(row) : nth}>
      ${columns.map((each) => html`<td class=${each.kind || ""} data-name=${each.name}>${each.of(row) ?? "–"}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** Names and values. `pairs`: [name, value]; pairs without a value are left out. */
export const Facts = ({pairs}) => html`<dl class="facts">
  ${pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
    .map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
</dl>`;

/** A text in a box, with a button that copies it. */
export function Copy({label, text}) {
  const [said, say] = useState("");
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      say("copied");
    } catch {
      say("select the text and copy it");
    }
  }
  return html`<div class="copy"><span class="label">${label}</span><code>${text}</code>
    <button type="button" onClick=${copy} aria-label=${`copy ${label}`}>copy</button><span role="status">${said}</span></div>`;
}

/** A dialog above the page. The browser keeps the focus in it, and Escape closes it. The focus goes back to what opened it; if that is gone, to the page. */
export function Dialog({title, onClose, children, wide}) {
  const box = useRef(null);
  useEffect(() => {
    const opener = document.activeElement, shown = box.current;
    shown.showModal();
    return () => {
      shown.close();
      if (!document.activeElement || document.activeElement === document.body || shown.contains(document.activeElement)) (opener?.isConnected ? opener : document.getElementById("main"))?.focus();
    };
  }, []);
  return html`<dialog ref=${box} class=${wide ? "wide" : ""} aria-label=${title} onClose=${onClose}>
    <header><h2>${title}</h2><button type="button" onClick=${onClose} aria-label="close">×</button></header>
    ${children}
  </dialog>`;
}

/** Links to the parts of a page; `now` is the present one. */
export const Tabs = ({label, tabs, now}) => html`<nav class="tabs" aria-label=${label}>
  ${tabs.map(([name, href, extra]) => html`<a href=${href} aria-current=${name === now ? "page" : undefined}>${name}${extra ? html` <span class="badge">${extra}</span>` : ""}</a>`)}
</nav>`;

/** A text that may be very long: its first `most` characters, and a button that shows all of it. */
export function Long({text, most = 4000}) {
  const [all, show] = useState(false);
  const shown = all || text.length <= most ? text : text.slice(0, most);
  return html`<pre class="text" dir="auto">${shown}</pre>
    ${shown !== text && html`<button type="button" onClick=${() => show(true)}>show all ${text.length.toLocaleString("en-US")} characters</button>`}`;
}

// Two texts side by side: the lines that differ, and those near them.
import {diff} from "./diff.js";
import {html, useMemo} from "./html.js";

const NEAR = 3;  // unchanged lines around a change

/** The difference of two texts, each {name, text}. `same`: what is said if there is none. */
export function Sides({left, right, same}) {
  const pairs = useMemo(() => diff(left.text, right.text), [left.text, right.text]);
  const changes = pairs.map(([one, other]) => one === null || other === null || one.text !== other.text);
  const near = changes.map((_, nth) => changes.slice(Math.max(0, nth - NEAR), nth + NEAR + 1).some(Boolean));
  if (!changes.some(Boolean)) return html`<p>${same}</p>`;
  const cell = (line, sign) => html`<td class="number quiet">${line?.number ?? ""}</td><td class=${line && sign ? `line ${sign}` : "line"}>${line && sign ? html`<span class="unseen">${sign === "gone" ? "removed: " : "added: "}</span>` : ""}<code>${line?.text ?? ""}</code></td>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="difference"><table class="diff"><caption class="unseen">difference of ${left.name} and ${right.name}</caption>
    <thead><tr><th scope="col"><span class="unseen">line</span></th><th scope="col">${left.name}</th><th scope="col"><span class="unseen">line</span></th><th scope="col">${right.name}</th></tr></thead>
    <tbody>${pairs.map(([one, other], nth) => near[nth] ? html`<tr key=${nth}>${cell(one, changes[nth] && "gone")}${cell(other, changes[nth] && "new")}</tr>`
      : near[nth - 1] || nth === 0 ? html`<tr key=${nth}><td colspan="4" class="quiet">…</td></tr>` : null)}</tbody></table></div>`;
}

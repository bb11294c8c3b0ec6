// The Batches of one query as bars: above the time that each took, split by phase; below rows in beside rows out, with the dead letters above them.
import {html, useRef, useState} from "./html.js";
import {bytes, count, moment} from "./format.js";

const HIGH = 70;
const PHASES = ["plan", "process", "decide", "publish"];
const seconds = (number) => `${number.toFixed(3)} s`;

/** The seconds that a Batch took; null if it is not known. */
export const took = (row) => row.phases_s && Object.values(row.phases_s).reduce((sum, each) => sum + each, 0);

/** The name of a Batch in the address of the page. */
export const nameOf = (row) => `${row.tier}:${row.query}:${row.batch}`;

/** The numbers of a Batch in words. */
const told = (row) => [`Batch ${count(row.batch)}`, `decided ${moment(row.decided_at)}`, `${count(row.rows_in)} in`, `${count(row.rows_out)} out`,
  row.dead === null ? "dead letters not known yet" : `${count(row.dead)} dead`, row.published ? "published" : "not yet published",
  row.phases_s ? `took ${seconds(took(row))}: ${PHASES.map((phase) => `${phase} ${seconds(row.phases_s[phase] ?? 0)}`).join(", ")}` : "time not known",
  row.state_rows !== null && `state ${count(row.state_rows)} rows, ${bytes(row.state_bytes)}`, row.watermark && `watermark ${moment(row.watermark)}`].filter(Boolean).join(", ");

const part = (number, most, kind) => html`<span class=${kind} style=${{height: `${number ? Math.max(2, (number / most) * HIGH) : 0}px`}}></span>`;

/** `rows`: oldest first; `to`: the address of a Batch. Arrow keys move between bars. */
export function BatchBars({rows, chosen, to}) {
  const [pointed, point] = useState(null);
  const list = useRef(null);
  const most = Math.max(1, ...rows.map((row) => Math.max(row.rows_in, row.rows_out + (row.dead || 0))));
  const longest = Math.max(0.001, ...rows.map((row) => took(row) ?? 0));
  const entry = rows.some((row) => nameOf(row) === chosen) ? chosen : nameOf(rows.at(-1));
  function move(event) {
    const steps = {ArrowLeft: -1, ArrowRight: 1, Home: -rows.length, End: rows.length}[event.key];
    if (!steps) return;
    event.preventDefault();
    const bars = [...list.current.querySelectorAll("a")];
    bars[Math.min(bars.length - 1, Math.max(0, bars.indexOf(document.activeElement) + steps))].focus();
  }
  const shown = rows.find((row) => nameOf(row) === pointed) ?? rows.find((row) => nameOf(row) === entry);
  return html`<div class="bars" ref=${list} role="group" aria-label=${`Batches of ${rows[0].tier}, ${rows[0].query}`} onKeyDown=${move} onMouseLeave=${() => point(null)}>
    ${rows.map((row) => {
      const name = nameOf(row);
      return html`<a key=${name} href=${to(row)} aria-label=${told(row)} aria-current=${name === chosen ? "true" : undefined} tabindex=${name === entry ? 0 : -1} onMouseEnter=${() => point(name)} onFocus=${() => point(name)}>
        <span class="track"><span class="bar">${PHASES.map((phase, nth) => part(row.phases_s?.[phase], longest, `p${nth}`))}</span></span>
        <span class="track"><span class="bar">${part(row.rows_in, most, "in")}</span><span class="bar">${part(row.dead || 0, most, "dead")}${part(row.rows_out, most, "out")}</span></span></a>`;
    })}</div>
  <p class="legend">${PHASES.map((phase, nth) => html`<span key=${phase} class=${`key p${nth}`}>${phase}</span> `)}<span class="key in">in</span> <span class="key out">out</span> <span class="key dead">dead</span> <span>${told(shown)}</span></p>`;
}

/** The seconds of the phases of one Batch as one bar. */
export function Phases({phases}) {
  const named = PHASES.filter((phase) => phase in phases).map((phase) => [phase, phases[phase]]), all = named.reduce((sum, [, spent]) => sum + spent, 0);
  if (!named.length || !all) return null;
  return html`<div class="phases" aria-hidden="true">${named.map(([name, spent], nth) => html`<span class=${`p${nth % 4}`} title=${name} style=${{flexGrow: spent / all}}></span>`)}</div>
    <p class="legend">${named.map(([name, spent], nth) => html`<span key=${name}><span class=${`key p${nth % 4}`}>${name}</span> ${seconds(spent)}</span> `)}</p>`;
}

// The last lines of the logs of a flow, by tier and file.
import {html, useEffect, useRef, useState} from "../lib/html.js";
import {command} from "../lib/act.js";
import {path} from "../lib/api.js";
import {FlowFrame, link} from "../lib/flow.js";
import {useAnswer} from "../lib/live.js";
import {visible} from "../lib/record_bytes.js";
import {Answer, Copy} from "../lib/ui.js";

const FOLLOWS_S = 3;
const AMOUNTS = ["100", "500", "2000", "10000"];

/** The lines of a file; it stays at its end as long as the reader is there. */
function Lines({file, words}) {
  const box = useRef(null), atEnd = useRef(true);
  const shown = file.lines.filter((line) => words.every((word) => line.toLowerCase().includes(word)));
  useEffect(() => { if (atEnd.current) box.current?.scrollTo({top: box.current.scrollHeight}); });
  const scrolled = () => { atEnd.current = box.current.scrollHeight - box.current.scrollTop - box.current.clientHeight < 30; };
  const name = `${file.tier}: ${file.file || file.node}`;
  return html`<section aria-label=${name}><h2>${file.tier} <span class="quiet">${file.file}${file.node ? ` on ${file.node}` : ""}</span></h2>
    ${file.problem && html`<div class="fault"><p>${file.problem}</p></div>`}
    ${words.length > 0 && html`<p class="quiet">${shown.length} of ${file.lines.length} lines match</p>`}
    ${shown.length > 0 && html`<pre class="text log" ref=${box} tabindex="0" aria-label=${`lines of ${name}`} onScroll=${scrolled}>${visible(shown.join("\n"))}</pre>`}
    ${!file.problem && file.lines.length === 0 && html`<p class="quiet">The file is empty.</p>`}</section>`;
}

function Shown({flow, view, query}) {
  const tier = query.get("tier") || "", lines = AMOUNTS.includes(query.get("lines")) ? query.get("lines") : AMOUNTS[0];
  const [filter, setFilter] = useState(""), [file, setFile] = useState(""), [follows, follow] = useState(true);
  const logs = useAnswer(`${path`flows/${flow}/logs`}?${new URLSearchParams({lines, ...(tier && {tier})})}`, {every: follows ? FOLLOWS_S : 0});
  const go = (change) => { location.hash = link(flow, `/logs?${new URLSearchParams({lines, tier, ...change})}`); };
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const files = [...new Set((logs.data || []).map((each) => each.file))];
  return html`<div class="row" role="search">
      <label>tier <select value=${tier} onChange=${(event) => go({tier: event.target.value})}><option value="">all</option>${view.tiers.map((each) => html`<option key=${each.tier}>${each.tier}</option>`)}</select></label>
      <label>file <select value=${file} onChange=${(event) => setFile(event.target.value)}><option value="">all</option>${files.map((each) => html`<option key=${each} value=${each}>${each.split("/").at(-1)}</option>`)}</select></label>
      <label>lines <select value=${lines} onChange=${(event) => go({lines: event.target.value})}>${AMOUNTS.map((each) => html`<option key=${each}>${each}</option>`)}</select></label>
      <label>filter <input type="search" value=${filter} onInput=${(event) => setFilter(event.target.value)}/></label>
      <label><input type="checkbox" checked=${follows} onChange=${(event) => follow(event.target.checked)}/> follow</label>
      ${!follows && html`<button type="button" onClick=${logs.again}>again</button>`}</div>
    <${Answer} of=${logs} empty="No worker of this flow has written a log yet.">${(all) => all.filter((each) => !file || each.file === file).map((each) => html`<${Lines} key=${each.tier + each.file} file=${each} words=${words}/>`)}</${Answer}>
    <${Copy} label="command" text=${command("scribengin", "logs", flow, ...(tier ? ["--tier", tier] : []), "--lines", lines, ...(follows ? ["--follow"] : []))}/>`;
}

export default function Logs({flow, query}) {
  return html`<${FlowFrame} flow=${flow} now="Logs">${(view) => html`<${Answer} of=${view}>${(data) => html`<${Shown} flow=${flow} view=${data} query=${query}/>`}</${Answer}>`}</${FlowFrame}>`;
}

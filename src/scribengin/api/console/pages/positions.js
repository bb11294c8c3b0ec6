// How far each query has read each source; a position is set while the flow is stopped.
import {command} from "../lib/act.js";
import {path} from "../lib/api.js";
import {FlowFrame} from "../lib/flow.js";
import {Started} from "../lib/flow_changes.js";
import {count} from "../lib/format.js";
import {html, useState} from "../lib/html.js";
import {useAnswer} from "../lib/live.js";
import {Opener} from "../lib/opener.js";
import {Again} from "../lib/planned.js";
import {PreviewedAct} from "../lib/previewed.js";
import {Answer, Table} from "../lib/ui.js";

function SetPosition({flow, row, onClose, onDone}) {
  const [value, write] = useState("");
  const position = value.trim();
  const act = {title: `set the position of ${row.source}`, button: "set the position", method: "POST", path: path`flows/${flow}/offsets`, body: {source: row.source, position, query: row.query}, name: flow,
    says: `The flow must be stopped. Query ${row.query} has read ${count(row.position)} entries of ${row.source}. Skipped data is never read; data that is read again is duplicated in the outputs.`,
    command: command("scribengin", "offsets", "set", flow, row.source, position || "POSITION", "--query", row.query, "--yes"),
    after: (answer) => html`<${Started} flow=${flow} answer=${answer} says=${answer.says.join(" ")}/>`};
  return html`<${PreviewedAct} act=${act} valid=${/^([0-9]+|end)$/.test(position)} button="show what is read again or skipped" onClose=${onClose} onDone=${onDone}>
    <label>position <input value=${value} placeholder="a number of entries, or end" onInput=${(event) => write(event.target.value)} autocomplete="off" spellcheck=${false}/></label></${PreviewedAct}>`;
}

function Parts({flow}) {
  const answer = useAnswer(path`flows/${flow}/offsets`);
  return html`<${Again} of=${answer}/>
    <${Answer} of=${answer} empty="No query of this flow has run yet.">${(rows) => html`<${Table} caption="positions" rows=${rows} keyOf=${(row) => `${row.tier} ${row.query} ${row.source}`} columns=${[
      {name: "tier", of: (row) => row.tier}, {name: "query", of: (row) => row.query}, {name: "source", of: (row) => html`${row.source}${row.channel && html` <span class="badge">channel</span>`}`},
      {name: "position", kind: "number", of: (row) => count(row.position)}, {name: "logged", kind: "number", of: (row) => count(row.logged)}, {name: "last Batch", kind: "number", of: (row) => row.batch},
      {name: "last read", of: (row) => html`<span dir="auto">${row.last || "–"}</span>`},
      {name: "acts", of: (row) => row.channel ? "" : html`<${Opener} label="set position" role="operator" aria-label=${`set position of ${row.source} in ${row.query}`} onDone=${(acted) => { if (acted) answer.again(); }}>${(ends) => html`<${SetPosition} flow=${flow} row=${row} ...${ends}/>`}</${Opener}>`}]}/>`}</${Answer}>`;
}

export default function Positions({flow}) {
  return html`<${FlowFrame} flow=${flow} now="Positions">${() => html`<${Parts} flow=${flow}/>`}</${FlowFrame}>`;
}

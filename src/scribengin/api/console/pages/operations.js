// Operations of several steps, those under way first.
import {command} from "../lib/act.js";
import {html} from "../lib/html.js";
import {path} from "../lib/api.js";
import {link} from "../lib/flow.js";
import {useAnswer} from "../lib/live.js";
import {Buttons, useAct} from "../lib/opener.js";
import {Answer, Moment, State, Table} from "../lib/ui.js";

const cancel = (row) => ({title: "cancel", says: `Operation ${row.id} of ${row.flow} is cancelled, if it has not changed anything yet. Over a workflow, no further flow is changed.`, role: "operator", method: "DELETE",
  path: path`flows/${row.flow}/operations/${row.id}`, command: command("scribengin", "operation", "cancel", row.flow, row.id), button: "cancel the operation", after: () => html`<p>The operation is cancelled.</p>`});

const listed = (value) => Array.isArray(value) ? value.join(", ") : typeof value === "object" && value !== null ? JSON.stringify(value) : String(value);
const details = (row) => Object.entries(row.arguments).filter(([, value]) => value !== null && listed(value) !== "").map(([name, value]) => html`<div><span class="quiet">${name.replaceAll("_", " ")}</span> ${listed(value)}</div>`);

/** A table of operations. */
export function Operations({rows, again, caption = "operations"}) {
  const [open, dialog] = useAct(again);
  const shown = [...rows].sort((a, b) => b.under_way - a.under_way || (b.at < a.at ? -1 : 1));
  return html`<${Table} caption=${caption} rows=${shown} keyOf=${(row) => `${row.flow} ${row.id}`} columns=${[
    {name: "flow", of: (row) => html`<a href=${link(row.flow, "/operations")}>${row.flow}</a>`}, {name: "id", of: (row) => row.id}, {name: "operation", of: (row) => row.kind},
    {name: "step", of: (row) => html`<${State} state=${row.step}/>${row.under_way && " under way"}`}, {name: "tiers", of: (row) => row.tiers.join(", ")}, {name: "by", of: (row) => row.by}, {name: "begun", of: (row) => html`<${Moment} at=${row.at}/>`},
    {name: "in this step since", of: (row) => html`<${Moment} at=${row.since}/>`}, {name: "details", of: (row) => html`${details(row)}${row.error && html`<div>${row.error}</div>`}`},
    {name: "acts", of: (row) => row.under_way ? html`<${Buttons} acts=${[cancel(row)]} open=${open} of=${`operation ${row.id} of ${row.flow}`}/>` : ""}]}/>${dialog}`;
}

export default function AllOperations() {
  const answer = useAnswer("operations", {every: 3});
  return html`<h1>Operations</h1>
    <${Answer} of=${answer} empty="There is no operation. Rewinding a flow, for example, is one.">${(rows) => html`<${Operations} rows=${rows} again=${answer.again}/>`}</${Answer}>`;
}

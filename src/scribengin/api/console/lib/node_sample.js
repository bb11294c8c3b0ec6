// What a node makes of the first records of its flow: its columns, and rows before and after it.
import {html, useState} from "./html.js";
import {path} from "./api.js";
import {count} from "./format.js";
import {useAnswer} from "./live.js";
import {visible} from "./record_bytes.js";
import {may} from "./session.js";
import {Answer, Table} from "./ui.js";

const CELL = 120;  // characters of a value
const SAID = {kept: "", made: "", dropped: "dropped", dead: "dead letter"};
const FATES = {dead_letter: "dead letters", drop: "dead, which a run drops (on_error: drop)", fail: "dead, at which a run stops (on_error: fail)"};

function Value({of}) {
  if (of === null || of === undefined) return html`<i class="quiet">null</i>`;
  const text = visible(typeof of === "string" ? of : JSON.stringify(of));
  return text.length <= CELL ? html`<span dir="auto">${text}</span>` : html`<span dir="auto" title=${text.slice(0, 2000)}>${text.slice(0, CELL)}…</span>`;
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** The columns that differ: how each is on the way in and on the way out. */
function Columns({node}) {
  const before = new Map((node.inputs.length === 1 && node.columns_in || []).map((each) => [each.name, each])), after = new Map((node.columns || []).map((each) => [each.name, each]));
  const type = (each) => each && `${each.type}${each.nullable ? "" : " NOT NULL"}`;
  const rows = [...new Set([...before.keys(), ...after.keys()])].map((name) => ({name, one: type(before.get(name)), other: type(after.get(name))}));
  const change = ({one, other}) => !before.size || one === other ? "" : !one ? "new" : !other ? "gone" : "changed";
  return html`<h4>Columns</h4><${Table} caption="columns" rows=${rows} keyOf=${(row) => row.name} columns=${[
    {name: "column", of: (row) => html`<span dir="auto">${visible(row.name)}</span>`}, ...(before.size ? [{name: "in", of: (row) => row.one}] : []), {name: "out", of: (row) => row.other}, ...(before.size ? [{name: "difference", of: (row) => change(row) && html`<strong>${change(row)}</strong>`}] : [])]}/>`;
}

/** Rows that come in, where they cannot be matched with rows that go out. */
function Came({rows, input}) {
  const names = Object.keys(rows[0]);
  return html`<h4>From ${input}</h4><${Table} caption=${`rows from ${input}`} rows=${rows} columns=${names.map((name) => ({name: visible(name), of: (row) => html`<${Value} of=${row[name]}/>`}))}/>`;
}

/** Each row beside what became of it: the columns that come in, then those that are new or have another value. */
function Rows({node}) {
  const matched = node.rows.filter((row) => row.before), left = matched.length ? Object.keys(matched[0].before) : [];
  const changed = (node.columns || []).map((each) => each.name).filter((name) => !left.includes(name) || matched.some((row) => row.after.some((each) => !same(row.before[name], each.row[name]))));
  const lines = node.rows.flatMap((row) => (row.after.length ? row.after : [{branch: "", row: null}]).map((each, nth) => ({row, after: each, nth})));
  const branched = lines.some((line) => line.after.branch), fates = lines.some((line) => SAID[line.row.fate] || line.nth);
  const why = ({row}) => row.fate === "dead" && html`${row.reason}: ${visible(row.message)}${row.code_line && html` <code>${row.code_line}</code>`}${row.place && html`<div class="quiet">record at ${visible(row.place)}</div>`}${row.payload && html`<div><${Value} of=${row.payload}/></div>`}`;
  const columns = [
    ...(fates ? [{name: "outcome", of: ({row, nth}) => nth ? "one more row" : SAID[row.fate] || "kept"}] : []),
    ...left.map((name) => ({name: visible(name), of: ({row, nth}) => nth ? "" : row.before && html`<${Value} of=${row.before[name]}/>`})),
    ...(branched ? [{name: "goes to", of: ({after}) => after.branch || "–"}] : []),
    ...changed.map((name) => ({name: left.length ? `→ ${visible(name)}` : visible(name), of: ({after}) => after.row ? html`<${Value} of=${after.row[name]}/>` : ""})),
    ...(lines.some((line) => line.row.fate === "dead") ? [{name: "reason", of: why}] : []),
  ];
  return lines.length > 0 && html`<h4>${left.length ? "Rows in, and what became of them" : "Rows"}</h4><${Table} caption="sample rows" rows=${lines} keyOf=${(_, nth) => nth} columns=${columns}/>`;
}

function Shown({node, problems}) {
  const inputs = [...new Set(node.came.map((each) => each.input))];
  const out = Object.entries(node.out).map(([branch, rows]) => branch ? `${count(rows)} to ${branch}` : `${count(rows)} out`);
  return html`${node.failure ? html`<div class="fault"><p>${node.failure}</p></div>` : html`<p>${[`${count(node.in)} in`, ...out, node.dropped && `${count(node.dropped)} dropped`, node.dead && `${count(node.dead)} ${FATES[node.on_error]}`].filter(Boolean).join(", ")}</p>`}
    ${problems.filter((each) => each.message !== node.failure || each.remedy).map((each) => html`<div class="note"><p>${each.line ? `line ${each.line}: ` : ""}${each.message}</p>${each.remedy && html`<p class="remedy">${each.remedy}</p>`}</div>`)}
    ${node.notes.map((each) => html`<p class="quiet">${each}</p>`)}
    ${node.columns && html`<${Columns} node=${node}/>`}${inputs.map((input) => html`<${Came} key=${input} input=${input} rows=${node.came.filter((each) => each.input === input).map((each) => each.row)}/>`)}<${Rows} node=${node}/>`;
}

/** A sample of a node, taken when its user asks for it: it runs the flow's functions. */
export function Sample({flow, node}) {
  const [wanted, want] = useState(false);
  const answer = useAnswer(wanted ? path`flows/${flow}/nodes/${node}/preview` : null, {exact: true});
  if (!may("operator")) return null;
  return html`<h3>Columns and sample rows</h3>
    ${!wanted ? html`<p><button type="button" onClick=${() => want(true)}>take a sample</button> <span class="quiet">The first 20 records of the sources go through the steps, beside the running flow. Nothing is written.</span></p>`
      : html`${answer.data === null && !answer.error && html`<p class="quiet">This takes some seconds, more if a step needs Spark.</p>`}<${Answer} of=${answer}>${(found) => html`<${Shown} node=${found.node} problems=${found.problems}/>`}</${Answer}>
        ${(answer.data || answer.error) && html`<p><button type="button" onClick=${answer.again}>take the sample again</button></p>`}`}`;
}

// The way of a record, drawn from where it was read to the sinks and dead letters that it reached.
import {html, useState} from "../lib/html.js";
import {command} from "../lib/act.js";
import {path} from "../lib/api.js";
import {count, moment} from "../lib/format.js";
import {FlowFrame, link} from "../lib/flow.js";
import {useAnswer} from "../lib/live.js";
import {Again} from "../lib/planned.js";
import {visible} from "../lib/record_bytes.js";
import {Answer, Copy} from "../lib/ui.js";

const FIRST = 20;

/** A time to the millisecond: hops follow each other fast. */
const exact = (milliseconds) => moment(milliseconds / 1000).replace(/(:\d\d)(?=Z|[+-])/, `$1.${String(milliseconds % 1000).padStart(3, "0")}`);

const traced = (flow, record) => link(flow, `/trace?${new URLSearchParams({record})}`);

/** The record in another flow: a link, or its name if the flow is of a peer. */
const Elsewhere = ({flow, record}) => flow.includes("/") ? html`<span>${flow}, record <code>${visible(record)}</code></span>` : html`<span>${flow}, record <a href=${traced(flow, record)}><code>${visible(record)}</code></a></span>`;

function Stop({kind, title, at, children}) {
  return html`<li class=${kind}><span class="what">${title}</span>${at && html` <time>${at}</time>`}${children && html`<span class="about">${children}</span>`}</li>`;
}

const originOf = (way, hop) => way.read.find((read) => read.origin && read.tier === hop.tier && read.query === hop.query && read.batch === hop.batch)?.origin;

function Start({way, first}) {
  const origin = first && originOf(way, first);
  return html`${way.came.map((each) => html`<${Stop} key=${each.record} kind="source" title="made by another flow"><${Elsewhere} ...${each}/></${Stop}>`)}
    ${origin && html`<${Stop} kind="source" title=${`host ${origin.host}`} at=${origin.read_at}>${visible(origin.file)}${origin.line ? `, line ${count(origin.line)}` : ""}, by agent ${origin.agent}</${Stop}>
      <${Stop} kind="hop" title=${`gateway ${origin.gateway}`} at=${origin.stored_at}>stored</${Stop}>`}`;
}

/** A row that a record became in a sink, and the flows that read it there. */
const Row = ({row}) => html`<span>${visible(row.place)} ${row.readers.map((reader) => html`<span key=${reader.flow}>read by <${Elsewhere} ...${reader}/> </span>`)}</span>`;

function Way({way, flow, each}) {
  const source = each.id.split("/")[0], letter = each.step !== undefined;
  const last = each.hops.at(-1);
  const went = letter ? [] : way.went.filter((row) => row.sink === each.sink && row.tier === last?.tier && row.query === last?.query && row.batch === last?.batch);
  return html`<section aria-label=${`way of ${visible(each.id)}`}><h2 dir="auto"><code>${visible(each.id)}</code></h2><ol class="way">
    <${Start} way=${way} first=${each.hops[0]}/>
    <${Stop} kind="source" title=${`source ${source}`}>${visible(each.id.slice(source.length + 1))}</${Stop}>
    ${each.hops.map((hop, nth) => html`<${Stop} key=${nth} kind="hop" title=${`tier ${hop.tier}`} at=${exact(hop.time_ms)}>query ${hop.query}, <a href=${link(flow, `/batches?${new URLSearchParams({batch: `${hop.tier}:${hop.query}:${hop.batch}`})}`)}>Batch ${count(hop.batch)}</a>, on ${hop.host}${hop.member ? `, by ${hop.member}` : ""}</${Stop}>`)}
    ${letter ? html`<${Stop} kind="dead" title=${`dead letter of ${each.step}`}>${each.reason}: <span dir="auto">${visible(each.message)}</span> <a href=${link(flow, `/dead?${new URLSearchParams({prefix: each.letter})}`)}>open it</a></${Stop}>`
    : html`<${Stop} kind="sink" title=${`sink ${each.sink}`}>${went.map((row, nth) => html`<${Row} key=${nth} row=${row}/>`)}</${Stop}>`}
  </ol></section>`;
}

function Found({way, flow}) {
  const [all, show] = useState(false);
  const ways = [...way.arrivals, ...way.dead], shown = all ? ways : ways.slice(0, FIRST);
  return html`${ways.length === 0 && html`<p>Where it arrived is not known${way.read.length ? ", but it was read:" : "."}</p>`}
    ${way.notes.map((note) => html`<p class="note" key=${note}>${visible(note)}</p>`)}
    ${shown.map((each, nth) => html`<${Way} key=${nth} way=${way} flow=${flow} each=${each}/>`)}
    ${shown.length < ways.length && html`<button type="button" onClick=${() => show(true)}>show all ${count(ways.length)}</button>`}
    ${way.arrivals.length === 0 && way.went.length > 0 && html`<h2>Rows that were made of it</h2><ul>${way.went.map((row, nth) => html`<li key=${nth}>sink ${row.sink}: <${Row} row=${row}/></li>`)}</ul>`}
    ${way.read.length > 0 && html`<h2>Batches that read it</h2><ul>${way.read.map((read, nth) => html`<li key=${nth}>Batch ${count(read.batch)} of query ${read.query}, tier ${read.tier}: ${visible(read.stream)} at ${moment(read.decided_at)}; ${read.acknowledged ? "everything made from it is committed" : "not yet acknowledged"}</li>`)}</ul>`}
    <${Copy} label="command" text=${command("scribengin", "trace", flow, way.record)}/>`;
}

function Shown({flow, query}) {
  const record = query.get("record") || "";
  const way = useAnswer(record ? `${path`flows/${flow}/trace`}?${new URLSearchParams({record})}` : null);
  function ask(event) {
    event.preventDefault();
    location.hash = traced(flow, new FormData(event.target).get("record"));
  }
  return html`<form class="row" role="search" onSubmit=${ask} key=${record}>
      <label class="wide">record <input name="record" defaultValue=${record} required placeholder="orders/a.jsonl+17, its beginning, or the key of a dead letter" autocomplete="off" spellcheck=${false}/></label>
      <button class="main">trace</button>${record && html`<${Again} of=${way}/>`}</form>
    ${record ? html`<${Answer} of=${way}>${(found) => html`<${Found} way=${found} flow=${flow}/>`}</${Answer}>` : html`<p class="quiet">The id of a record is in its dead letter; it begins with the name of its source. The first characters of an id find all records that begin so.</p>`}`;
}

export default function Trace({flow, query}) {
  return html`<${FlowFrame} flow=${flow} now="Trace">${() => html`<${Shown} flow=${flow} query=${query}/>`}</${FlowFrame}>`;
}

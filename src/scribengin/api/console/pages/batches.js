// The Batches of a flow: each as a bar, rates and what waits over time, and what is known of one Batch.
import {html, useMemo} from "../lib/html.js";
import {path} from "../lib/api.js";
import {BatchBars, nameOf, Phases, took} from "../lib/batch_bars.js";
import {Chart} from "../lib/chart.js";
import {bytes, count, duration, moment, percent, rate} from "../lib/format.js";
import {FlowFrame, link, queriesOf} from "../lib/flow.js";
import {useAnswer, useFlowAnswer} from "../lib/live.js";
import {Again, decided, useSeldom} from "../lib/planned.js";
import {Answer, Facts, Moment, Table} from "../lib/ui.js";

const MOST = 100;
/** The master has samples of 10 s for 6 hours: a longer time has samples of 600 s. */
const SPANS = {"10 minutes": {seconds: 600, step: 10, every: 3}, "5 hours": {seconds: 5 * 3600, step: 10, every: 30}, "14 days": {seconds: 14 * 86400, step: 600, every: 300}};
/** A rate; a small one with its tenths. */
const exact = (number) => number !== null && number < 10 && number % 1 ? number.toFixed(1) : count(number);

const RATES = {title: "rows per second", says: exact, lines: [
  {name: "in", colour: "link", of: (each) => each.rows_in_per_s}, {name: "out", colour: "good", of: (each) => each.rows_out_per_s}, {name: "dead", colour: "bad", of: (each) => each.dead_per_s}]};
const LAG_ROWS = {title: "rows that wait", says: count, lines: [{name: "rows", colour: "warn", of: (each) => each.lag_rows}]};
const LAG_BYTES = {title: "bytes that wait", says: bytes, lines: [{name: "bytes", colour: "warn", of: (each) => each.lag_bytes}]};
const LAG_AGE = {title: "age of the oldest that waits", says: duration, lines: [{name: "age", colour: "warn", of: (each) => each.lag_s}]};

/** The samples that are complete: the newest one still grows. */
const complete = (samples, now) => (samples || []).filter((each) => each.at + each.step_s <= now);

const lettersOf = (flow, row) => link(flow, `/dead?${new URLSearchParams({query: row.query, ...(row.decided_at && {since: row.decided_at, until: new Date(Date.parse(row.decided_at) + 1).toISOString()})})}`);

const STATE = {title: "rows in the state after each Batch", says: count, lines: [{name: "rows", colour: "link", of: (each) => each.state_rows}]};
const BEHIND = {title: "the watermark, behind the time of the decision", says: duration, lines: [{name: "behind", colour: "warn", of: (each) => each.watermark && Math.max(0, each.at - Date.parse(each.watermark) / 1000)}]};

/** The state and the watermark of a query over its last Batches. `rows`: oldest first. */
function Kept({rows}) {
  const samples = useMemo(() => rows.map((row) => ({...row, at: Date.parse(row.decided_at) / 1000})), [rows]);
  const has = (name) => rows.some((row) => row[name] !== null);
  return (has("state_rows") || has("watermark")) && html`<div class="charts">${has("state_rows") && html`<${Chart} chart=${STATE} samples=${samples}/>`}${has("watermark") && html`<${Chart} chart=${BEHIND} samples=${samples}/>`}</div>`;
}

const MOST_RECEIPTS = 200;

/** What the decision of a Batch says, and the receipts of its outputs. */
function Decided({of}) {
  const receipts = of.receipts.slice(0, MOST_RECEIPTS);
  return html`<${Facts} pairs=${[["ran on", of.host && `${of.host}${of.workers > 1 ? `, with ${count(of.workers)} workers` : ""}`], ["Term", of.term], ["lineage", html`<code>${of.lineage}</code>`],
    ["entries of sources", of.sources.map((each) => html`<div key=${each.source}>${each.source}: ${count(each.start)} to ${count(each.end)}</div>`)], ["input", html`<code>${of.input_hash.slice(0, 16)}</code>`], ["plan", html`<code>${of.plan.slice(0, 16)}</code>`]]}/>
    <${Table} caption="rows of each node in this Batch" rows=${of.nodes} keyOf=${(row) => row.node} columns=${[{name: "node", of: (row) => row.node}, ...["in", "out", "made", "filtered", "folded", "dead", "late"].map((name) => ({name, kind: "number", of: (row) => count(row[name])}))]}/>
    ${receipts.length > 0 && html`<h3>Receipts</h3><${Table} caption="receipts" rows=${receipts} keyOf=${(row) => `${row.sink} ${row.unit}`} columns=${[{name: "sink", of: (row) => row.sink}, {name: "task output", kind: "number", of: (row) => count(row.unit)},
      {name: "rows", kind: "number", of: (row) => count(row.rows)}, {name: "size", kind: "number", of: (row) => bytes(row.bytes)}, {name: "what the sink recorded", of: (row) => row.segments.length > 0 && html`<details><summary>${count(row.segments.length)} ${row.segments.length === 1 ? "entry" : "entries"}</summary><pre class="text">${JSON.stringify(row.segments, null, 1)}</pre></details>`}]}/>
      ${of.receipts.length > MOST_RECEIPTS && html`<p class="quiet">${count(MOST_RECEIPTS)} of ${count(of.receipts.length)} receipts; all: <code>scribengin batch show ${of.flow} ${of.batch} --query ${of.query} --json</code></p>`}`}`;
}

function Known({flow, row, rows, metrics, view}) {
  const before = rows.find((each) => each.tier === row.tier && each.query === row.query && each.batch === row.batch - 1);
  const through = view?.acknowledged.find((each) => each.tier === row.tier && each.query === row.query);
  const live = queriesOf(metrics).find((each) => each.tier === row.tier && each.query === row.query);
  const newest = !rows.some((each) => each.tier === row.tier && each.query === row.query && each.batch > row.batch);
  const phases = row.phases_s ?? (newest && live?.phases_s);
  const decision = useAnswer(`${path`flows/${flow}/batches/${row.batch}`}?query=${encodeURIComponent(row.query)}`);
  return html`<section class="panel" aria-label=${`Batch ${row.batch}`}><h2>Batch ${count(row.batch)} of ${row.query}, tier ${row.tier}</h2>
    <${Facts} pairs=${[["decided", html`<${Moment} at=${row.decided_at}/>`], ["after the Batch before it", before && duration((Date.parse(row.decided_at) - Date.parse(before.decided_at)) / 1000)],
      ["rows in", count(row.rows_in)], ["rows out", count(row.rows_out)],
      ["dead letters", row.dead === null ? "not known yet: a store may still refuse rows" : row.dead ? html`<a href=${lettersOf(flow, row)}>${count(row.dead)}</a>` : "0"],
      ["output visible to readers", row.published ? "yes" : "not yet known"], ["everything made from it is committed", through && (through.acknowledged >= row.batch ? "yes" : "not yet")],
      ["state after it", row.state_rows !== null && `${count(row.state_rows)} rows, ${bytes(row.state_bytes)}`], ["ran under the watermark", row.watermark && html`<${Moment} at=${row.watermark}/>`]]}/>
    ${phases && html`<${Phases} phases=${phases}/>`}
    <h3>Decision</h3><${Answer} of=${decision}>${(of) => html`<${Decided} of=${of}/>`}</${Answer}></section>`;
}

function Queries({rows}) {
  return html`<h2>Queries now</h2><${Table} caption="queries" rows=${rows} keyOf=${(row) => row.tier + row.query} columns=${[
    {name: "tier", of: (row) => row.tier}, {name: "query", of: (row) => row.query}, {name: "state", of: (row) => row.state},
    {name: "rate", kind: "number", of: (row) => rate(row.rows_per_s)}, {name: "rows wait", kind: "number", of: (row) => count(row.lag.rows)}, {name: "oldest", kind: "number", of: (row) => duration(row.lag.seconds)},
    {name: "state rows", kind: "number", of: (row) => count(row.state_rows)}, {name: "state", kind: "number", of: (row) => bytes(row.state_bytes)},
    {name: "watermark", of: (row) => row.watermark && html`<${Moment} at=${row.watermark}/>${row.behind_s !== null && ` (${duration(row.behind_s)} behind)`}`},
    {name: "held back by", of: (row) => row.held_back_by}, {name: "slowest", of: (row) => row.slowest && `${row.slowest.node} ${percent(row.slowest.share)}`}]}/>
    ${rows.filter((row) => Object.keys(row.phases_s).length).map((row) => html`<h3 key=${row.tier + row.query}>Last Batch of ${row.query}, tier ${row.tier}: ${duration(Object.values(row.phases_s).reduce((sum, each) => sum + each, 0))}</h3><${Phases} phases=${row.phases_s}/>`)}`;
}

/** Links of which one is chosen. */
const Choices = ({label, names, now, to}) => html`<div class="row" role="group" aria-label=${label}>${names.map((each) => html`<a class="choice" key=${each} href=${to(each)} aria-current=${each === now ? "true" : undefined}>${each}</a>`)}</div>`;

function Over({flow, span, tier, here}) {
  const {seconds, step, every} = SPANS[span];
  const since = Math.floor(Date.now() / 600_000) * 600 - seconds;
  const answer = useAnswer(`${path`flows/${flow}/metrics`}?step=${step}${seconds > 600 ? `&since=${since}` : ""}`, {every});
  const tiers = Object.keys(answer.data?.series || {}), shown = tiers.includes(tier) ? tier : tiers[0];
  const samples = useMemo(() => answer.data ? complete(answer.data.series[shown], answer.data.at) : [], [answer.data, shown]);
  const choices = html`<div class="row"><${Choices} label="time shown" names=${Object.keys(SPANS)} now=${span} to=${(each) => here({span: each})}/>
    ${tiers.length > 1 && html`<${Choices} label="tier shown" names=${tiers} now=${shown} to=${(each) => here({tier: each})}/>`}</div>`;
  if (!samples.length) return html`${choices}<${Answer} of=${answer}>${() => html`<p class="quiet">No complete sample yet: the master keeps them since it leads.</p>`}</${Answer}>`;
  const has = (name) => samples.some((each) => each[name] !== null);
  return html`${choices}<div class="charts"><${Chart} chart=${RATES} samples=${samples}/>${has("lag_rows") && html`<${Chart} chart=${LAG_ROWS} samples=${samples}/>`}
    ${!has("lag_rows") && has("lag_bytes") && html`<${Chart} chart=${LAG_BYTES} samples=${samples}/>`}${has("lag_s") && html`<${Chart} chart=${LAG_AGE} samples=${samples}/>`}</div>
    <details><summary>the same as a table: the last 60 samples</summary><${Table} caption="samples" rows=${samples.slice(-60).reverse()} keyOf=${(each) => each.at} columns=${[
      {name: "time", of: (each) => moment(each.at)}, {name: "in/s", kind: "number", of: (each) => exact(each.rows_in_per_s)}, {name: "out/s", kind: "number", of: (each) => exact(each.rows_out_per_s)},
      {name: "dead/s", kind: "number", of: (each) => exact(each.dead_per_s)}, {name: "rows wait", kind: "number", of: (each) => count(each.lag_rows)}, {name: "bytes wait", kind: "number", of: (each) => bytes(each.lag_bytes)},
      {name: "oldest", kind: "number", of: (each) => duration(each.lag_s)}]}/></details>`;
}

function List({flow, rows, chosen, to}) {
  return html`<${Table} caption="Batches" rows=${rows} keyOf=${nameOf} columns=${[
    {name: "Batch", kind: "number", of: (row) => html`<a href=${to(row)} aria-current=${nameOf(row) === chosen ? "true" : undefined}>${count(row.batch)}</a>`}, {name: "query", of: (row) => row.query}, {name: "tier", of: (row) => row.tier},
    {name: "decided", of: (row) => html`<${Moment} at=${row.decided_at}/>`}, {name: "rows in", kind: "number", of: (row) => count(row.rows_in)}, {name: "rows out", kind: "number", of: (row) => count(row.rows_out)},
    {name: "dead", kind: "number", of: (row) => row.dead ? html`<a href=${lettersOf(flow, row)}>${count(row.dead)}</a>` : count(row.dead)}, {name: "took", kind: "number", of: (row) => row.phases_s ? `${took(row).toFixed(3)} s` : "–"}, {name: "published", of: (row) => row.published ? "yes" : "not yet"}]}/>`;
}

function Shown({flow, view, query}) {
  const chosen = query.get("batch"), tier = query.get("tier"), span = SPANS[query.get("span")] ? query.get("span") : "10 minutes";
  const metrics = useFlowAnswer(flow, `${path`flows/${flow}/metrics`}?step=600`);
  const batches = useAnswer(`${path`flows/${flow}/batches`}?limit=${MOST}`, {stamp: useSeldom(decided(metrics.data))});
  const here = (change) => link(flow, `/batches?${new URLSearchParams({span, ...(tier && {tier}), ...(chosen && {batch: chosen}), ...change})}`);
  const to = (row) => here({batch: nameOf(row)});
  const live = queriesOf(metrics.data);
  return html`<${Over} flow=${flow} span=${span} tier=${tier} here=${here}/>
    <div class="row"><h2>Last Batches</h2><${Again} of=${batches}/></div>
    <${Answer} of=${batches}>${({batches: rows}) => {
      const row = rows.find((each) => nameOf(each) === chosen);
      const groups = Map.groupBy([...rows].reverse(), (each) => `${each.tier}, ${each.query}`);
      return rows.length === 0 ? html`<p class="quiet">No Batch is decided yet.</p>` : html`
        ${[...groups].map(([name, mine]) => html`<div key=${name}>${groups.size > 1 && html`<h3>${name}</h3>`}<${BatchBars} rows=${mine} chosen=${chosen} to=${to}/><${Kept} rows=${mine}/></div>`)}
        ${row && html`<${Known} flow=${flow} row=${row} rows=${rows} metrics=${metrics.data} view=${view.data}/>`}
        ${chosen && !row && html`<p class="quiet">Batch ${chosen} is not among the last ${MOST}.</p>`}
        <${List} flow=${flow} rows=${rows} chosen=${chosen} to=${to}/>
        <p class="quiet">The same: <code>scribengin batch list ${flow} --limit ${MOST}</code></p>`;
    }}</${Answer}>
    ${live.length > 0 && html`<${Queries} rows=${live}/>`}`;
}

export default function Batches({flow, query}) {
  return html`<${FlowFrame} flow=${flow} now="Batches">${(view) => html`<${Shown} flow=${flow} view=${view} query=${query}/>`}</${FlowFrame}>`;
}

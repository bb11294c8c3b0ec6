// All flows, worst first.
import {ask} from "../lib/asked.js";
import {html, useEffect, useMemo, useState} from "../lib/html.js";
import {ago, bytes, count, duration, moment} from "../lib/format.js";
import {get} from "../lib/api.js";
import {figures, flows, useStore} from "../lib/live.js";
import {session} from "../lib/session.js";
import {State} from "../lib/ui.js";
import {Window} from "../lib/window.js";

const KEPT = 60, STEP_S = 10;  // of a trend: the last ten minutes, as the master keeps them
const RANKS = ["failed", "degraded", "recovering", "created", "starting", "running", "draining", "stopping", "paused", "stopped", "finished"];
/** Flow → Map of the number of a sample, since 1970, to what waited then. */
const trends = new Map();
const slotOf = (seconds) => Math.floor(seconds / STEP_S);

/** How bad a flow is: lower is worse. */
function rank(row) {
  const state = RANKS.indexOf(row.state);
  if (state <= 2) return state;
  if (row.alerts.length) return 2.2;
  if (row.now?.falls_behind || row.now?.silent.length) return 2.4;
  if (row.wanted !== row.state && row.wanted === "running" && row.state !== "finished") return 2.6 + state / 100;
  return state;
}

function remember(row) {
  const lag = row.now ? row.now.lag_rows ?? row.now.lag_bytes : null;
  if (lag === null) return;
  note(row.flow, slotOf(Date.now() / 1000), lag);
}

function note(flow, slot, lag) {
  if (!trends.has(flow)) trends.set(flow, new Map());
  const kept = trends.get(flow);
  kept.set(slot, lag);
  if (kept.size > 2 * KEPT) [...kept.keys()].filter((each) => each <= slot - KEPT).forEach((each) => kept.delete(each));
}

/** What the master knows from before this page was opened. Its clock may differ from this one's. */
async function recall() {
  if (Object.keys(session.value?.labels ?? {}).length) return;  // figures of all flows are not for this user
  const {at, flows: lags} = await get("metrics/trends").catch(() => ({flows: {}}));
  const apart = Date.now() / 1000 - at;
  for (const [flow, values] of Object.entries(lags)) {
    values.forEach((lag, nth) => { if (lag !== null && nth < values.length - 1) note(flow, slotOf(at + apart) - values.length + 1 + nth, lag); });
  }
}

function Trend({kept}) {
  const last = slotOf(Date.now() / 1000), values = [...(kept ?? [])].filter(([slot]) => slot > last - KEPT).sort(([one], [other]) => one - other);
  if (values.length < 2) return null;
  const lags = values.map(([, lag]) => lag), most = Math.max(...lags, 1), width = KEPT - 1;
  const points = values.map(([slot, lag]) => `${slot - last + width} ${(20 - (lag / most) * 19).toFixed(1)}`);
  const way = lags.at(-1) > lags[0] ? "grows" : lags.at(-1) < lags[0] ? "shrinks" : "stays";
  return html`<svg class="trend" viewBox=${`0 0 ${width} 20`} preserveAspectRatio="none" role="img" aria-label=${`the lag ${way}`}><path d=${`M${points.join("L")}`}/></svg>`;
}

/** What waits, as `scribengin top` shows it. */
const waits = (now) => !now ? "–" : now.lag_rows !== null ? count(now.lag_rows) : now.lag_bytes !== null ? bytes(now.lag_bytes) : "–";

/** Why a flow is in its state, and what to do. */
const why = (row) => [row.why, row.next].filter(Boolean).join(" → ");

const COLUMNS = [
  {name: "flow", kind: "name", of: (row) => html`<a class="flow" href=${`#/flows/${encodeURIComponent(row.flow)}`}>${row.flow}</a>`},
  {name: "state", of: (row) => html`<${State} state=${row.state}/>${row.wanted !== row.state && html`<br/><span class="quiet">wanted ${row.wanted}</span>`}`},
  {name: "why, and what to do", kind: "why", wide: true, about: why, of: (row) => html`${row.why}${row.next && html` <span class="quiet">→ ${row.next}</span>`}`},
  {name: "waits", kind: "number", of: ({now}) => html`${waits(now)}${now?.delay_s ? html`<br/><span class="quiet">${duration(now.delay_s)} old</span>` : ""}`},
  {name: "trend", wide: true, of: (row) => html`<${Trend} kept=${trends.get(row.flow)}/>`},
  {name: "rows/s", kind: "number", wide: true, of: ({now}) => now ? html`${count(now.rows_in_per_s)} in<br/>${count(now.rows_out_per_s)} out` : "–"},
  {name: "dead", kind: "number", wide: true, of: ({flow, now}) => !now ? "–" : now.dead ? html`<a href=${`#/flows/${encodeURIComponent(flow)}/dead`} aria-label=${`${count(now.dead)} dead letters of ${flow}`}>${count(now.dead)}</a>` : "0"},
  {name: "version", kind: "number", wide: true, about: (row) => `since ${moment(row.since)}`, of: (row) => html`v${row.version}<br/><span class="quiet">${row.since ? ago(row.since) : ""}</span>`},
];

function matches(row, words) {
  return words.every((word) => {
    const [label, value] = word.split("=");
    if (value !== undefined) return row.labels?.[label] === value;
    return row.flow.includes(word) || row.state === word || (row.why || "").toLowerCase().includes(word);
  });
}

export default function Fleet({query}) {
  const known = useStore(flows);
  const seen = useStore(figures);
  const text = query.get("filter") || "", state = query.get("state") || "";
  const rows = useMemo(() => {
    return [...(known || new Map()).values()].map((flow) => {
      const more = seen?.get(flow.flow);
      return {...flow, now: more?.now ?? null, alerts: more?.alerts ?? [], why: more?.why ?? flow.reason};
    });
  }, [known, seen]);
  const [, recalled] = useState(false);
  useEffect(() => { recall().then(() => recalled(true)); }, []);
  useEffect(() => { (seen || new Map()).forEach(remember); }, [seen]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = rows.filter((row) => (!state || row.state === state) && matches(row, words))
    .map((row) => [rank(row), row]).sort(([a, one], [b, other]) => a - b || (one.flow < other.flow ? -1 : 1)).map(([, row]) => row);
  const states = [...new Set(rows.map((row) => row.state))].sort();
  const change = (values) => ask("#/", {filter: text, state, ...values});
  return html`<h1>Fleet <span class="quiet">${known ? `${count(rows.length)} flows` : ""}</span></h1>
    <div class="row" role="search">
      <label>filter <input type="search" value=${text} placeholder="name, words of the reason, label=value" onInput=${(event) => change({filter: event.target.value})}/></label>
      <label>state <select value=${state} onChange=${(event) => change({state: event.target.value})}><option value="">all</option>${states.map((each) => html`<option>${each}</option>`)}</select></label>
      ${states.map((each) => html`<button type="button" aria-pressed=${state === each} onClick=${() => change({state: state === each ? "" : each})}><${State} state=${each}/> ${count(rows.filter((row) => row.state === each).length)}</button>`)}
    </div>
    ${known === null ? html`<p class="quiet" aria-busy="true">asking the master …</p>`
    : rows.length === 0 ? html`<p>No flow has been applied here yet. Apply one: <code>scribengin apply flow.yaml</code></p>`
    : shown.length === 0 ? html`<p>No flow matches the filter.</p>` : html`<${Window} label="flows" kind="fleet-row" columns=${COLUMNS} rows=${shown} keyOf=${(row) => row.flow}/>`}`;
}

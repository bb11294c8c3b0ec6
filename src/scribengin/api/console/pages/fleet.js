// All flows, worst first.
import {html, useEffect, useMemo, useRef, useState} from "../lib/html.js";
import {ago, bytes, count, duration, moment} from "../lib/format.js";
import {flows, useAnswer, useStore} from "../lib/live.js";
import {State} from "../lib/ui.js";

const ROW = 50;  // pixels; the same as the height in style.css
const KEPT = 60;
const RANKS = ["failed", "degraded", "recovering", "created", "starting", "running", "draining", "stopping", "paused", "stopped", "finished"];
const trends = new Map();

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
  const before = trends.get(row.flow) || [];
  trends.set(row.flow, [...before.slice(1 - KEPT), lag]);
}

function Trend({values}) {
  if (!values || values.length < 2) return null;
  const most = Math.max(...values, 1), width = KEPT - 1;
  const points = values.map((each, nth) => `${nth + width + 1 - values.length} ${(20 - (each / most) * 19).toFixed(1)}`);
  const way = values.at(-1) > values[0] ? "grows" : values.at(-1) < values[0] ? "shrinks" : "stays";
  return html`<svg class="trend" viewBox=${`0 0 ${width} 20`} preserveAspectRatio="none" role="img" aria-label=${`the lag ${way}`}><path d=${`M${points.join("L")}`}/></svg>`;
}

/** What waits, as `scribengin top` shows it. */
const waits = (now) => !now ? "–" : now.lag_rows !== null ? count(now.lag_rows) : now.lag_bytes !== null ? bytes(now.lag_bytes) : "–";

function Row({row, nth}) {
  const {now} = row;
  const why = [row.why, row.next].filter(Boolean).join(" → ");
  return html`<div class="fleet-row" role="row" aria-rowindex=${nth + 2}>
    <span role="cell"><a class="flow" href=${`#/flows/${encodeURIComponent(row.flow)}`}>${row.flow}</a></span>
    <span role="cell"><${State} state=${row.state}/>${row.wanted !== row.state && html`<br/><span class="quiet">wanted ${row.wanted}</span>`}</span>
    <span role="cell" class="why wide" title=${why}>${row.why}${row.next && html` <span class="quiet">→ ${row.next}</span>`}</span>
    <span role="cell" class="number">${waits(now)}${now?.delay_s ? html`<br/><span class="quiet">${duration(now.delay_s)} old</span>` : ""}</span>
    <span role="cell" class="wide"><${Trend} values=${trends.get(row.flow)}/></span>
    <span role="cell" class="number wide">${now ? html`${count(now.rows_in_per_s)} in<br/>${count(now.rows_out_per_s)} out` : "–"}</span>
    <span role="cell" class="number wide">${now ? count(now.dead) : "–"}</span>
    <span role="cell" class="number wide" title=${`since ${moment(row.since)}`}>v${row.version}<br/><span class="quiet">${row.since ? ago(row.since) : ""}</span></span>
  </div>`;
}

/** Only the rows in sight are drawn. */
function Rows({rows}) {
  const box = useRef(null);
  const [top, scroll] = useState(0);
  const [height, grow] = useState(800);
  useEffect(() => {
    const shown = box.current, seen = new ResizeObserver(() => grow(shown.clientHeight));
    seen.observe(shown);
    return () => seen.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / ROW) - 5), last = Math.min(rows.length, Math.ceil((top + height) / ROW) + 5);
  return html`<div class="window" ref=${box} tabindex="0" role="table" aria-label="flows" aria-rowcount=${rows.length + 1} onScroll=${(event) => scroll(event.target.scrollTop)}>
    <div class="fleet-row head" role="row" aria-rowindex="1"><span role="columnheader">flow</span><span role="columnheader">state</span><span role="columnheader" class="wide">why, and what to do</span>
      <span role="columnheader" class="number">waits</span><span role="columnheader" class="wide">trend</span><span role="columnheader" class="number wide">rows/s</span><span role="columnheader" class="number wide">dead</span><span role="columnheader" class="number wide">version</span></div>
    <div role="rowgroup" style=${{paddingTop: `${first * ROW}px`, paddingBottom: `${(rows.length - last) * ROW}px`}}>
      ${rows.slice(first, last).map((row, nth) => html`<${Row} key=${row.flow} row=${row} nth=${first + nth}/>`)}
    </div></div>`;
}

function matches(row, words) {
  return words.every((word) => {
    const [label, value] = word.split("=");
    if (value !== undefined) return row.labels?.[label] === value;
    return row.flow.includes(word) || row.state === word || (row.why || "").toLowerCase().includes(word);
  });
}

export default function Fleet({query}) {
  const known = useStore(flows);
  const figures = useAnswer("metrics", {every: 2});
  const text = query.get("filter") || "", state = query.get("state") || "";
  const rows = useMemo(() => {
    const seen = new Map((figures.data || []).map((each) => [each.flow, each]));
    return [...(known || new Map()).values()].map((flow) => {
      const more = seen.get(flow.flow);
      return {...flow, now: more?.now ?? null, alerts: more?.alerts ?? [], why: more?.why ?? flow.reason};
    });
  }, [known, figures.data]);
  useEffect(() => { (figures.data || []).forEach(remember); }, [figures.data]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = rows.filter((row) => (!state || row.state === state) && matches(row, words))
    .map((row) => [rank(row), row]).sort(([a, one], [b, other]) => a - b || (one.flow < other.flow ? -1 : 1)).map(([, row]) => row);
  const states = [...new Set(rows.map((row) => row.state))].sort();
  function ask(change) {
    const next = new URLSearchParams(Object.entries({filter: text, state, ...change}).filter(([, value]) => value));
    history.replaceState(null, "", `#/${next.size ? `?${next}` : ""}`);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
  return html`<h1>Fleet <span class="quiet">${known ? `${count(rows.length)} flows` : ""}</span></h1>
    <div class="row" role="search">
      <label>filter <input type="search" value=${text} placeholder="name, words of the reason, label=value" onInput=${(event) => ask({filter: event.target.value})}/></label>
      <label>state <select value=${state} onChange=${(event) => ask({state: event.target.value})}><option value="">all</option>${states.map((each) => html`<option>${each}</option>`)}</select></label>
      ${states.map((each) => html`<button type="button" aria-pressed=${state === each} onClick=${() => ask({state: state === each ? "" : each})}><${State} state=${each}/> ${count(rows.filter((row) => row.state === each).length)}</button>`)}
    </div>
    ${known === null ? html`<p class="quiet" aria-busy="true">asking the master …</p>`
    : rows.length === 0 ? html`<p>No flow has been applied here yet. Apply one: <code>scribengin apply flow.yaml</code></p>`
    : shown.length === 0 ? html`<p>No flow matches the filter.</p>` : html`<${Rows} rows=${shown}/>`}`;
}

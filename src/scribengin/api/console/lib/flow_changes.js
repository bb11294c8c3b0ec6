// Changes of a running flow that have values: rewind, with what it would read again; scale; limit.
import {Act, command, Value} from "./act.js";
import {path} from "./api.js";
import {count} from "./format.js";
import {html, useState} from "./html.js";
import {useAnswer} from "./live.js";
import {Opener} from "./opener.js";
import {PreviewedAct} from "./previewed.js";
import {Answer} from "./ui.js";

const NUMBER = /^[1-9][0-9]*$/;

/** What is shown after an act that an operation carries out. */
export function Started({flow, answer, says}) {
  const operations = useAnswer(answer.operation ? path`flows/${flow}/operations` : null, {every: 2});
  const row = operations.data?.find((each) => each.id === answer.operation);
  const now = row === undefined ? "does it" : row.under_way ? `does it; its step: ${row.step}` : `has ended: ${row.error || row.step}`;
  return html`<p>${says}</p>${answer.operation && html`<p>Operation ${answer.operation} ${now}. <a href=${`#/flows/${encodeURIComponent(flow)}/operations`}>See its steps</a>.</p>`}`;
}

/** Back to a time or a Batch. */
function Rewind({flow, onClose, onDone}) {
  const [how, choose] = useState("time");
  const [value, write] = useState("");
  const text = value.trim(), valid = how === "time" ? text !== "" : /^(-1|[0-9]+)$/.test(text);
  const act = {title: "rewind", says: "The workers end, go back, and start again. What was read since is read and written again.", method: "POST", path: path`flows/${flow}/rewind`, body: how === "time" ? {to_time: text} : {to_batch: Number(text)}, name: flow,
    command: command("scribengin", "offsets", "rewind", flow, how === "time" ? "--to-time" : "--to-batch", text || (how === "time" ? "TIME" : "N"), "--yes"),
    after: (answer) => html`<${Started} flow=${flow} answer=${answer} says=${answer.says.join(" ")}/>`};
  return html`<${PreviewedAct} act=${act} valid=${valid} button="show what is read again" onClose=${onClose} onDone=${onDone}>
    <label>to <select value=${how} onChange=${(event) => choose(event.target.value)}><option value="time">a time</option><option value="batch">after a Batch</option></select></label>
    <input aria-label=${how === "time" ? "time" : "Batch"} value=${value} placeholder=${how === "time" ? "2026-01-31T12:00:00Z, or 2h" : "number; -1: before the first"} onInput=${(event) => write(event.target.value)} autocomplete="off" spellcheck=${false}/></${PreviewedAct}>`;
}

/** Other resources of one tier, or of all. Empty values stay as they are. */
function Scale({flow, tiers, onClose, onDone}) {
  const [tier, choose] = useState(tiers.length === 1 ? tiers[0] : "");
  const [values, set] = useState({cores: "", executors: "", workers: ""});
  const given = Object.entries(values).filter(([, value]) => value.trim()), wrong = (value) => value.trim() && !NUMBER.test(value.trim()) ? "write a whole number from 1" : "";
  const act = {title: "scale", says: "Another version of the flow with these resources; positions and state are kept. The workers start again.", method: "POST", path: path`flows/${flow}/scale`,
    body: {...(tier && {tier}), ...Object.fromEntries(given.map(([name, value]) => [name, Number(value)]))}, disabled: given.length === 0 || given.some(([, value]) => wrong(value)),
    command: command("scribengin", "scale", tier ? `${flow}.${tier}` : flow, ...given.flatMap(([name, value]) => [`--${name}`, value.trim()])),
    after: (answer) => html`<${Started} flow=${flow} answer=${answer} says=${answer.changed ? `Version ${answer.version} is wanted now.` : "It was so before."}/>`};
  return html`<${Act} act=${act} onClose=${onClose} onDone=${onDone}>
    <p><label>tier <select value=${tier} onChange=${(event) => choose(event.target.value)}><option value="">all</option>${tiers.map((each) => html`<option key=${each}>${each}</option>`)}</select></label></p>
    ${Object.keys(values).map((name) => html`<${Value} key=${name} label=${name} value=${values[name]} onValue=${(value) => set({...values, [name]: value})} problem=${wrong(values[name])} inputmode="numeric" placeholder="as now"/>`)}</${Act}>`;
}

const rates = (limit) => limit ? [limit.rows_per_s && `${count(limit.rows_per_s)} rows/s`, limit.bytes_per_s && `${count(limit.bytes_per_s)} bytes/s`].filter(Boolean).join(", ") : "";

/** The rate limit of the flow, of a source or of an edge; it applies from the next Batch. */
function Limit({flow, onClose, onDone}) {
  const limits = useAnswer(path`flows/${flow}/limit`);
  const [target, choose] = useState("");
  const [rows, write] = useState("");
  const number = Number(rows), wrong = rows.trim() && !(number > 0) ? "write a number above 0, or nothing for no limit" : "";
  const act = {title: "limit", says: "It applies from the next Batch, without a restart.", method: "PUT", path: path`flows/${flow}/limit`, body: {target, rows_per_s: rows.trim() ? number : null, bytes_per_s: null}, disabled: Boolean(wrong),
    button: rows.trim() ? "set the limit" : "remove the limit", command: command("scribengin", "limit", target ? `${flow}:${target}` : flow, ...(rows.trim() ? ["--rows-per-second", rows.trim()] : ["--unset"])),
    after: (answer) => html`<p>${rates(answer.limits[target]) ? `The limit is ${rates(answer.limits[target])}.` : "There is no limit."}</p>`};
  return html`<${Act} act=${act} onClose=${onClose} onDone=${onDone}>
    <${Answer} of=${limits}>${(data) => html`<p class="quiet">${Object.entries(data.limits).filter(([, limit]) => rates(limit)).map(([name, limit]) => `${name || "whole flow"}: ${rates(limit)}`).join("; ") || "no limit now"}</p>`}</${Answer}>
    <${Value} label="of" value=${target} onValue=${choose} placeholder="the whole flow; or a source, or an edge a->b"/>
    <${Value} label="rows per second" value=${rows} onValue=${write} problem=${wrong} inputmode="numeric" placeholder="no limit"/></${Act}>`;
}

/** The buttons of these changes. `tiers`: the names of the flow's tiers. */
export const Changes = ({flow, tiers, onDone}) => html`<${Opener} label="rewind" role="operator" onDone=${onDone}>${(ends) => html`<${Rewind} flow=${flow} ...${ends}/>`}</${Opener}>
  <${Opener} label="scale" role="operator" onDone=${onDone}>${(ends) => html`<${Scale} flow=${flow} tiers=${tiers} ...${ends}/>`}</${Opener}>
  <${Opener} label="limit" role="operator" onDone=${onDone}>${(ends) => html`<${Limit} flow=${flow} ...${ends}/>`}</${Opener}>`;

// Changes of a running flow that have values: rewind, with what it would read again; scale; limit.
import {Act, command} from "./act.js";
import {path, send} from "./api.js";
import {count} from "./format.js";
import {html, useState} from "./html.js";
import {useAnswer} from "./live.js";
import {Opener} from "./opener.js";
import {Answer, Fault} from "./ui.js";

const NUMBER = /^[1-9][0-9]*$/;

/** A field of a dialog; `problem`: what is wrong with its value. */
const Value = ({label, value, onValue, problem, ...more}) => html`<p><label>${label} <input value=${value} onInput=${(event) => onValue(event.target.value)} autocomplete="off" spellcheck=${false} aria-invalid=${problem ? "true" : undefined} ...${more}/></label>${problem && html` <span class="remedy">${problem}</span>`}</p>`;

const Started = ({flow, answer, says}) => html`<p>${says}</p>${answer.operation && html`<p>Operation ${answer.operation} does it: <a href=${`#/flows/${encodeURIComponent(flow)}/operations`}>see its steps</a>.</p>`}`;

/** Back to a time or a Batch. What would be read again is shown first; only then it can be done. */
function Rewind({flow, onClose, onDone}) {
  const [how, choose] = useState("time");
  const [value, write] = useState("");
  const [preview, set] = useState({of: null, answer: null, error: null, busy: false});
  const text = value.trim(), valid = how === "time" ? text !== "" : /^(-1|[0-9]+)$/.test(text);
  const body = how === "time" ? {to_time: text} : {to_batch: Number(text)}, asked = JSON.stringify(body);
  const shown = preview.of === asked ? preview : {answer: null, error: null};
  async function look(event) {
    event.preventDefault();
    set({of: asked, answer: null, error: null, busy: true});
    try {
      const answer = await send("POST", path`flows/${flow}/rewind`, {...body, yes: false});
      set({of: asked, answer, error: null, busy: false});
    } catch (error) {
      set({of: asked, answer: null, error, busy: false});
    }
  }
  const act = {title: "rewind", says: "The workers end, go back, and start again. What was read since is read and written again.", method: "POST", path: path`flows/${flow}/rewind`, body: {...body, yes: true}, name: flow,
    command: command("scribengin", "offsets", "rewind", flow, how === "time" ? "--to-time" : "--to-batch", text || (how === "time" ? "TIME" : "N"), "--yes"), disabled: shown.answer === null,
    after: (answer) => html`<${Started} flow=${flow} answer=${answer} says=${answer.says.join(" ")}/>`};
  return html`<${Act} act=${act} onClose=${onClose} onDone=${onDone}>
    <form class="row" onSubmit=${look}><label>to <select value=${how} onChange=${(event) => choose(event.target.value)}><option value="time">a time</option><option value="batch">after a Batch</option></select></label>
      <input aria-label=${how === "time" ? "time" : "Batch"} value=${value} placeholder=${how === "time" ? "2026-01-31T12:00:00Z, or 2h" : "number; -1: before the first"} onInput=${(event) => write(event.target.value)} autocomplete="off" spellcheck=${false}/>
      <button disabled=${!valid || preview.busy}>${preview.busy ? "asking …" : "show what is read again"}</button></form>
    <div aria-live="polite">${shown.answer && html`<ul>${shown.answer.says.map((each) => html`<li key=${each}>${each}</li>`)}</ul>`}<${Fault} error=${shown.error}/></div></${Act}>`;
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
export const Changes = ({flow, tiers, onDone}) => html`<${Opener} label="rewind" role="operator">${(close) => html`<${Rewind} flow=${flow} onClose=${close} onDone=${onDone}/>`}</${Opener}>
  <${Opener} label="scale" role="operator">${(close) => html`<${Scale} flow=${flow} tiers=${tiers} onClose=${close} onDone=${onDone}/>`}</${Opener}>
  <${Opener} label="limit" role="operator">${(close) => html`<${Limit} flow=${flow} onClose=${close} onDone=${onDone}/>`}</${Opener}>`;

// A flow file, pasted or dropped: checked as one types, shown as a graph, planned against what runs, and applied.
import {html, useEffect, useRef, useState} from "../lib/html.js";
import {Act, command, Until} from "../lib/act.js";
import {path, send} from "../lib/api.js";
import {count} from "../lib/format.js";
import {link} from "../lib/flow.js";
import {maskedAs} from "../lib/diff.js";
import {FileDifferences} from "../lib/file_differences.js";
import {flows, useAnswer, useStore} from "../lib/live.js";
import {may} from "../lib/session.js";
import {Sides} from "../lib/sides.js";
import {Answer, Fault} from "../lib/ui.js";
import {Graph} from "./flow.js";

const PAUSE_MS = 600, LARGEST = 200_000;
const EXAMPLE = `version: 1
name: orders
sources:
  orders: {type: files, path: /data/orders, format: json, schema: "id BIGINT, amount DOUBLE"}
steps:
  big: {from: orders, filter: "amount > 100"}
sinks:
  kept: {from: big, type: files, path: /data/kept, format: json}
`;

/** The problems of a text; asked for when its user pauses, one request at a time. */
function useCheck(text) {
  const [state, set] = useState({text: null, checked: null, error: null, busy: false});
  useEffect(() => {
    if (!text.trim()) return set({text, checked: null, error: null, busy: false});
    const abort = new AbortController();
    set((before) => ({...before, busy: true}));
    const timer = setTimeout(async () => {
      try {
        set({text, checked: await send("POST", "flow-files/check", {text}, {signal: abort.signal}), error: null, busy: false});
      } catch (error) {
        if (error.name !== "AbortError") set({text, checked: null, error, busy: false});
      }
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);
  return state;
}

function Problems({problems, jump}) {
  if (problems.length === 0) return html`<p role="status">No problems.</p>`;
  return html`<ul class="problems" aria-label="problems">${problems.map((each, nth) => html`<li key=${nth} class=${each.severity}>
    <button type="button" class="plain" onClick=${() => jump(each.line, each.column)}>line ${each.line}, column ${each.column}</button> ${each.severity}: ${each.message}${each.remedy && html` <span class="remedy">${each.remedy}</span>`} <span class="quiet">[${each.code}]</span></li>`)}</ul>`;
}

/** What runs, and the text; secrets are not compared. */
function Running({flow, version, text}) {
  const running = useAnswer(path`flows/${flow}/versions/${version}/text`);
  return html`<h2>What runs, and this file</h2><${FileDifferences} flow=${flow} stamp=${version} alone/>
    <${Answer} of=${running}>${(found) => {
      const before = found.text.trimEnd();
      return html`<${Sides} left=${{name: `what runs, version ${version}`, text: before}} right=${{name: "this file", text: maskedAs(before, text.trimEnd())}} same=${`What runs is this file: version ${version} of ${flow}.`}/>`;
    }}</${Answer}>`;
}

function Plan({planned}) {
  const {plan} = planned;
  return html`<h2>Plan <code>${plan.hash}</code></h2>
    ${plan.flows.map((each) => html`<div key=${each.flow}><p>${each.version ? `Flow ${each.flow} runs in version ${each.version}.` : `Flow ${each.flow} is new and starts.`} Relative paths start at <code>${planned.submit.base}</code>.</p>
      ${each.changes.length === 0 && each.version ? html`<p>Nothing changes.</p>` : ""}
      <ul>${each.changes.map((change) => html`<li key=${change.what}><strong>${change.what}</strong>: ${change.effect}; ${change.says}${change.remedy && html` <span class="remedy">${change.remedy}</span>`}</li>`)}</ul>
      ${each.anew.map((anew) => html`<p class="old" key=${anew.query}>Query ${anew.query} of tier ${anew.tier} needs a new checkpoint: it has read ${Object.entries(anew.read).map(([name, rows]) => `${count(rows)} rows from ${name}`).join(", ") || "nothing"} and written ${Object.entries(anew.written).map(([name, rows]) => `${count(rows)} rows to ${name}`).join(", ") || "nothing"}.</p>`)}</div>`)}`;
}

function Applied({flow, answer}) {
  const row = useStore(flows)?.get(flow);
  return html`<${Until} until=${row?.state === "running" && row.version === answer.version} done=${html`Version ${answer.version} of ${flow} runs.`}
    now=${html`${answer.changed ? `Version ${answer.version} of ${flow} is submitted` : "It was so before"}; the flow is ${row?.state ?? "created"}${row?.reason ? `: ${row.reason}` : ""}`}/><p><a href=${link(flow)}>See the flow</a></p>`;
}

export default function Apply() {
  const [text, write] = useState(() => sessionStorage.getItem("scribengin.text") || "");
  const [base, setBase] = useState("");
  const [accept, setAccept] = useState("");
  const [planned, setPlanned] = useState(null);
  const [error, fail] = useState(null);
  const [busy, work] = useState(false);
  const [asking, ask] = useState(false);
  const box = useRef(null);
  const check = useCheck(text);
  const known = useStore(flows);
  function change(next) {
    setPlanned(null);
    fail(next.length > LARGEST ? {message: `the text has ${count(next.length)} characters; up to ${count(LARGEST)} are checked here`, remedy: "use: scribengin apply FILE"} : null);
    if (next.length > LARGEST) return;
    sessionStorage.setItem("scribengin.text", next);
    write(next);
  }
  async function dropped(event) {
    const [file] = event.dataTransfer.files;
    if (!file) return;
    event.preventDefault();
    change(await file.text());
  }
  function jump(line, column) {
    const at = text.split("\n").slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + column - 1;
    box.current.focus();
    box.current.setSelectionRange(at, at + 1);
    box.current.scrollTop = (line - 5) * parseFloat(getComputedStyle(box.current).lineHeight);
  }
  async function plan() {
    work(true);
    fail(null);
    try {
      setPlanned(await send("POST", "flow-files/plan", {flow: check.checked.flow, text, base}));
    } catch (refused) {
      fail(refused);
    }
    work(false);
  }
  if (!may("editor")) return html`<h1>Apply</h1><p>Only users with the role editor apply flows.</p>`;
  const {checked} = check, flow = checked?.flow, ok = checked && check.text === text && checked.graph;
  const old = flow && known?.get(flow);
  const act = planned && {
    title: `apply ${flow}`, button: "apply", role: "editor", method: "PUT", path: path`flows/${flow}`, body: {...planned.submit, plan: planned.plan.hash, ...(accept ? {accept} : {})},
    says: "The text becomes the next version of the flow, and its desired state is running.", command: command("scribengin", "apply", planned.submit.path, ...(accept ? ["--accept", accept] : [])), after: (answer) => html`<${Applied} flow=${flow} answer=${answer}/>`,
  };
  return html`<h1>Apply a flow file</h1>
    <p class="quiet">Files stay the source of truth: keep what is applied here in a repository. A flow with code or files beside it is applied with its folder: <code>scribengin apply FILE</code></p>
    <div class="apply"><div><label for="text">flow file</label><textarea id="text" ref=${box} spellcheck=${false} rows="24" wrap="off" value=${text} onInput=${(event) => change(event.target.value)} onDrop=${dropped} onDragOver=${(event) => event.preventDefault()} placeholder="paste or drop a flow file"></textarea>
      <div class="row">${!text && html`<button type="button" onClick=${() => change(EXAMPLE)}>begin with an example</button>`}${text && html`<button type="button" onClick=${() => change("")}>clear</button>`}</div></div>
      <div aria-live="polite">${check.busy ? html`<p class="quiet">checking …</p>` : checked && html`<${Problems} problems=${checked.problems} jump=${jump}/>`}<${Fault} error=${check.error}/></div></div>
    ${old && html`<${Running} flow=${flow} version=${old.version} text=${check.text}/>`}
    ${checked?.graph && html`<h2>${flow}${old ? html` <span class="quiet">runs in version ${old.version}</span>` : html` <span class="quiet">new</span>`}</h2><${Graph} graph=${checked.graph} flow=${flow} slow=${new Set()} dead=${new Map()} bare/>
      <div class="row"><label>folder where relative paths start <input value=${base} placeholder="/folder" onInput=${(event) => { setBase(event.target.value); setPlanned(null); }}/></label>
      <button type="button" class="main" disabled=${!ok || busy} onClick=${plan}>${busy ? "planning …" : "plan"}</button></div>`}
    <${Fault} error=${error}/>
    ${planned && html`<${Plan} planned=${planned}/>
      ${planned.plan.flows.some((each) => each.anew.length) && html`<label>rows that are read again, or state that is lost <select value=${accept} onChange=${(event) => setAccept(event.target.value)}><option value="">not accepted</option><option value="again">accept: again</option><option value="lost">accept: lost</option></select></label>`}
      <p><button type="button" class="main" onClick=${() => ask(true)}>apply</button></p>`}
    ${asking && act && html`<${Act} act=${act} onClose=${() => ask(false)}/>`}`;
}

// A browser of the registry: the names below a path, and the record there. Admins edit the records that people may write.
import {Act, curl} from "../lib/act.js";
import {html, useState} from "../lib/html.js";
import {newKey, send} from "../lib/api.js";
import {count} from "../lib/format.js";
import {useAnswer} from "../lib/live.js";
import {Opener} from "../lib/opener.js";
import {Answer, Copy, Dialog, Facts, Fault} from "../lib/ui.js";

const MOST = 300;  // names drawn at once

/** The address of a path of the registry in the console. */
export const link = (place) => `#/registry${place ? `/${encodeURIComponent(place)}` : ""}`;

const route = (place) => `registry/${place.split("/").map(encodeURIComponent).join("/")}`;

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? {value} : {fault: "a record is an object: { … }"};
  } catch (error) {
    return {fault: error.message};
  }
}

/** The dialog that writes a record in place of the version that was read when it was opened. */
function Edit({view, again, onClose, onDone}) {
  const [base, setBase] = useState(view);
  const [text, setText] = useState(JSON.stringify(view.value ?? {}, null, 2));
  const [state, set] = useState({busy: false, error: null, done: false});
  const {value, fault} = parsed(text);
  const request = {method: "PUT", path: route(base.path), body: {value: value ?? {}, version: base.version}};
  async function write(event) {
    event.preventDefault();
    set({busy: true, error: null, done: false});
    try {
      await send(request.method, request.path, request.body, {key: newKey()});
      set({busy: false, error: null, done: true});
      onDone();
    } catch (error) {
      set({busy: false, error, done: false});
      if (error.code === "revision-stale") again();
    }
  }
  function readAgain() {
    setBase(view);
    setText(JSON.stringify(view.value ?? {}, null, 2));
    set({busy: false, error: null, done: false});
  }
  const stale = state.error?.code === "revision-stale";
  return html`<${Dialog} title=${`edit ${base.path}`} onClose=${onClose} wide>
    <p>It is written only if the record still has version ${base.version}.</p>
    ${state.done ? html`<div role="status" class="done"><p>The record is written.</p><button type="button" onClick=${onClose}>close</button></div>` : html`<form onSubmit=${write}>
      <label for="record">record, as JSON</label>
      <textarea id="record" class="record" spellcheck=${false} value=${text} aria-invalid=${fault ? "true" : "false"} aria-describedby="record-fault" onInput=${(event) => setText(event.target.value)}/>
      <p id="record-fault" role="status">${fault ? `not valid: ${fault}` : ""}</p>
      <div class="row"><button class="main" disabled=${Boolean(fault) || state.busy || stale}>write the record</button>
        ${stale && html`<button type="button" onClick=${readAgain} disabled=${view.version === base.version}>read again: version ${view.version}, without these changes</button>`}</div>
      ${!fault && html`<${Copy} label="curl" text=${curl(request)}/>`}
    </form>`}
    <${Fault} error=${state.error}/>
  </${Dialog}>`;
}

/** The dialog that deletes the version of a record that was shown when it was opened. */
function Remove({view, onClose, onDone}) {
  const [{path: place, version}] = useState(view);
  const act = {title: `delete ${place}`, says: `The record is deleted if it still has version ${version}.`, role: "admin", method: "DELETE", path: `${route(place)}?version=${version}`, name: place, button: "delete the record",
    after: () => html`<p>The record is deleted. <a href=${link(place.split("/").slice(0, -1).join("/"))}>Go to the path above</a>.</p>`};
  return html`<${Act} act=${act} onClose=${onClose} onDone=${onDone}/>`;
}

function Names({view}) {
  const [text, filter] = useState("");
  const found = view.children.filter((name) => name.includes(text));
  return html`<h2>Names below <span class="quiet">${count(view.children.length)}</span></h2>
    ${view.children.length > 20 && html`<p><label>filter <input type="search" value=${text} onInput=${(event) => filter(event.target.value)}/></label></p>`}
    <ul class="plain names">${found.slice(0, MOST).map((name) => html`<li key=${name}><a href=${link(view.path ? `${view.path}/${name}` : name)}>${name}</a></li>`)}</ul>
    ${found.length > MOST && html`<p class="quiet">${count(found.length - MOST)} more: use the filter.</p>`}`;
}

function Record({view, again}) {
  const there = view.value !== null || view.damaged;
  return html`<${Facts} pairs=${[["version", String(view.version)], ["changed at revision", count(view.changed)], ["written by", view.writable ? "people with role admin, and the control plane" : "the control plane only"]]}/>
    ${view.damaged && html`<div class="fault"><p>The record is damaged: ${view.damaged}</p></div>`}
    ${view.value !== null ? html`<pre class="text" aria-label="record" tabindex="0" role="region">${JSON.stringify(view.value, null, 2)}</pre>` : !there && html`<p class="quiet">There is no record here, only names below.</p>`}
    ${view.writable && there && html`<div class="row">
      <${Opener} label="edit" role="admin" onDone=${again}>${(ends) => html`<${Edit} view=${view} again=${again} ...${ends}/>`}</${Opener}>
      <${Opener} label="delete" role="admin" class="danger" onDone=${again}>${(ends) => html`<${Remove} view=${view} ...${ends}/>`}</${Opener}></div>`}
    ${view.children.length > 0 && html`<${Names} key=${view.path} view=${view}/>`}`;
}

export default function Registry({path: place = ""}) {
  const answer = useAnswer(route(place), {every: 5});
  const parts = place ? place.split("/") : [];
  return html`<nav class="crumbs" aria-label="path"><a href=${link("")}>registry</a>${parts.slice(0, -1).map((name, nth) => html` / <a href=${link(parts.slice(0, nth + 1).join("/"))}>${name}</a>`)} / </nav>
    <h1 dir="auto">${parts.at(-1) ?? "Registry"}</h1>
    <${Answer} of=${answer}>${(view) => html`<${Record} key=${place} view=${view} again=${answer.again}/>`}</${Answer}>`;
}

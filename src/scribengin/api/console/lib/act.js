// Acts: each shows its command and its request to copy; a destructive one asks for the name; the answer says what happens next.
import {html, useEffect, useState} from "./html.js";
import {address, newKey, send} from "./api.js";
import {Copy, Dialog, Fault} from "./ui.js";

const quoted = (text) => /^[\w./=:@,+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

/** A command line from its words, quoted for a shell. */
export const command = (...words) => words.filter((word) => word !== "").map((word) => quoted(String(word))).join(" ");

/** The same request for curl. */
export function curl({method, path, body}) {
  const parts = ["curl", "-X", method, quoted(address(path)), "-H", '"Authorization: Bearer $SCRIBENGIN_TOKEN"'];
  if (body !== undefined) parts.push("-H", "'Content-Type: application/json'", "-d", quoted(JSON.stringify(body)));
  return parts.join(" ");
}

/**
 * The dialog of an act.
 * act: {title, says, role, method, path, body, command, name: what is to be typed first (destructive), button, after: answer => what is shown}
 */
export function Act({act, onClose, onDone, children}) {
  const [typed, type] = useState("");
  const [key, renew] = useState(newKey);
  const [state, set] = useState({busy: false, error: null, answer: null});
  async function run(event) {
    event.preventDefault();
    set({busy: true, error: null, answer: null});
    try {
      const answer = await send(act.method, act.path, act.body, {key, headers: act.headers});
      set({busy: false, error: null, answer: answer ?? {}});
      onDone?.(answer);
    } catch (error) {
      if (error.status && error.status < 500) renew(newKey());  // the master repeats its refusal for the same key
      set({busy: false, error, answer: null});
    }
  }
  const ready = !act.name || typed === act.name;
  return html`<${Dialog} title=${act.title} onClose=${onClose}>
    ${act.says && html`<p>${act.says}</p>`}
    ${children}
    ${act.command && html`<${Copy} label="command" text=${act.command}/>`}
    <${Copy} label="curl" text=${curl(act)}/>
    ${state.answer === null ? html`<form onSubmit=${run} class="row">
      ${act.name && html`<label>type <strong>${act.name}</strong> to confirm <input value=${typed} onInput=${(event) => type(event.target.value)} autocomplete="off" spellcheck=${false}/></label>`}
      <button class=${act.name ? "danger" : "main"} disabled=${!ready || state.busy || act.disabled}>${state.busy ? "…" : act.button || act.title}</button>
    </form>` : html`<div role="status" class="done">${act.after ? act.after(state.answer) : html`<p>Done.</p>`}<button type="button" onClick=${onClose}>close</button></div>`}
    <${Fault} error=${state.error}/>
  </${Dialog}>`;
}

/** A field of a dialog; `problem`: what is wrong with its value. */
export const Value = ({label, value, onValue, problem, ...more}) => html`<p><label>${label} <input value=${value} onInput=${(event) => onValue(event.target.value)} autocomplete="off" spellcheck=${false} aria-invalid=${problem ? "true" : undefined} ...${more}/></label>${problem && html` <span class="remedy">${problem}</span>`}</p>`;

/** `of` once it is as `until` says; before, what it says now. For the answer of an act. */
export function Until({now, done, until}) {
  const [was, remember] = useState(false);
  useEffect(() => { if (until) remember(true); }, [until]);
  return html`<p>${was ? done : now}</p>`;
}

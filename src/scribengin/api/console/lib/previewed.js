// An act that is asked for as a dry run first: its dialog shows what it would do.
import {html, useEffect, useState} from "./html.js";
import {Act} from "./act.js";
import {send} from "./api.js";
import {Opener} from "./opener.js";
import {Fault} from "./ui.js";

function Box({act, tells, allows, onClose, onDone}) {
  const [preview, set] = useState({data: null, error: null});
  const [acted, finish] = useState(false);
  useEffect(() => {
    const abort = new AbortController();
    send(act.method, act.path, {...act.body, dry_run: true}, {signal: abort.signal}).then((data) => set({data, error: null}), (error) => { if (error.name !== "AbortError") set({data: null, error}); });
    return () => abort.abort();
  }, []);
  return html`<${Act} act=${{...act, disabled: preview.data === null || !allows(preview.data)}} onClose=${onClose} onDone=${() => { finish(true); onDone(); }}>
    <div class="preview" aria-live="polite">${acted ? null : preview.data ? tells(preview.data) : preview.error ? html`<${Fault} error=${preview.error}/>` : html`<p class="quiet">asking what would happen …</p>`}</div></${Act}>`;
}

/** A button that opens the act. `tells`: the answer of the dry run => what is shown; `allows`: that answer => whether the act may be done. `onOpen`, `onDone`: see useDialog. */
export const PreviewedButton = ({act, label, main, tells, allows, onOpen, onDone}) =>
  html`<${Opener} label=${label || act.title} role=${act.role} class=${act.name ? "danger" : main ? "main" : ""} onOpen=${onOpen} onDone=${onDone}>${(ends) => html`<${Box} act=${act} tells=${tells} allows=${allows} ...${ends}/>`}</${Opener}>`;

/** The dialog of an act with input, whose effect is shown when its user asks for it; only then it can be done. `act.body`: without `yes`; `children`: its fields; `button`: asks for the effect. */
export function PreviewedAct({act, valid, button, children, onClose, onDone}) {
  const [preview, set] = useState({of: null, answer: null, error: null, busy: false});
  const of = JSON.stringify(act.body), shown = preview.of === of ? preview : {answer: null, error: null};
  async function look(event) {
    event.preventDefault();
    set({of, answer: null, error: null, busy: true});
    try {
      const answer = await send(act.method, act.path, {...act.body, yes: false});
      set({of, answer, error: null, busy: false});
    } catch (error) {
      set({of, answer: null, error, busy: false});
    }
  }
  return html`<${Act} act=${{...act, body: {...act.body, yes: true}, disabled: shown.answer === null}} onClose=${onClose} onDone=${onDone}>
    <form class="row" onSubmit=${look}>${children}<button disabled=${!valid || preview.busy}>${preview.busy ? "asking …" : button}</button></form>
    <div aria-live="polite">${shown.answer && html`<ul>${shown.answer.says.map((each) => html`<li key=${each}>${each}</li>`)}</ul>`}<${Fault} error=${shown.error}/></div></${Act}>`;
}

// An act that is asked for as a dry run first: its dialog shows what it would do.
import {html, useEffect, useRef, useState} from "./html.js";
import {Act} from "./act.js";
import {send} from "./api.js";
import {may} from "./session.js";
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

/** Whether a dialog is open, and what opens and closes it. After an act `onDone` is called when its dialog is closed: what it changes may take the dialog away. */
export function useDialog({onOpen, onDone}) {
  const [open, show] = useState(false);
  const acted = useRef(false);
  return {
    open,
    enter: () => { acted.current = false; onOpen?.(); show(true); },
    done: () => { acted.current = true; },
    leave: () => {
      const was = acted.current;
      acted.current = false;  // a dialog that is taken away closes again
      show(false);
      onDone?.(was);
    },
  };
}

/** A button that opens the act. `tells`: the answer of the dry run => what is shown; `allows`: that answer => whether the act may be done. `onDone`: see useDialog. */
export function PreviewedButton({act, label, main, tells, allows, onOpen, onDone}) {
  const dialog = useDialog({onOpen, onDone});
  if (!may(act.role)) return null;
  return html`<button type="button" class=${act.name ? "danger" : main ? "main" : ""} onClick=${dialog.enter}>${label || act.title}</button>
    ${dialog.open && html`<${Box} act=${act} tells=${tells} allows=${allows} onClose=${dialog.leave} onDone=${dialog.done}/>`}`;
}

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

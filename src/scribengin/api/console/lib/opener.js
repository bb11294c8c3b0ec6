// Buttons that open dialogs. The dialog of an act stays when the act is no longer possible, as it is when it is done.
import {Act} from "./act.js";
import {html, useRef, useState} from "./html.js";
import {may} from "./session.js";

/**
 * A dialog: `open` is what it was opened with (`enter`), null while it is closed; `leave` closes it; `ends` are properties of its act.
 * `onDone` is called when it is closed, with whether the act was done: what the act changes may take the dialog away.
 */
export function useDialog({onOpen, onDone}) {
  const [open, show] = useState(null);
  const acted = useRef(false);
  function leave() {
    const was = acted.current;
    acted.current = false;  // a dialog that is taken away closes again
    show(null);
    onDone?.(was);
  }
  return {
    open,
    enter: (about) => { acted.current = false; onOpen?.(); show(about); },
    leave,
    ends: {onClose: leave, onDone: () => { acted.current = true; }},
  };
}

/** [open: a function that takes an act, the dialog of the opened act]. `onDone`: see useDialog. */
export function useAct(onDone) {
  const dialog = useDialog({onDone});
  return [dialog.enter, dialog.open && html`<${Act} act=${dialog.open} ...${dialog.ends}/>`];
}

/** A button for each act that the user's role allows. `of`: whose act it is, in a list; the buttons are of one look there. */
export const Buttons = ({acts, open, of = ""}) => acts.filter((act) => may(act.role)).map((act) =>
  html`<button type="button" key=${act.title} class=${act.name && !of ? "danger" : ""} aria-label=${of ? `${act.title} ${of}` : undefined} onClick=${() => open(act)}>${act.label || act.title}</button>`);

/** A button that opens a dialog of its own; nothing for a user whose role does not allow it. `children`: the properties of its act => the dialog. `onOpen`, `onDone`: see useDialog. */
export function Opener({label, role, onOpen, onDone, children, ...more}) {
  const dialog = useDialog({onOpen, onDone});
  if (!may(role)) return null;
  return html`<button type="button" ...${more} onClick=${() => dialog.enter(true)}>${label}</button>${dialog.open && children(dialog.ends)}`;
}

// Buttons that open dialogs. The dialog of an act stays when the act is no longer possible, as it is when it is done.
import {Act} from "./act.js";
import {html, useState} from "./html.js";
import {may} from "./session.js";

/** [open: a function that takes an act, the dialog of the opened act]. */
export function useAct(onDone) {
  const [act, open] = useState(null);
  return [open, act && html`<${Act} act=${act} onClose=${() => open(null)} onDone=${onDone}/>`];
}

/** A button for each act that the user's role allows. `of`: whose act it is, in a list; the buttons are of one look there. */
export const Buttons = ({acts, open, of = ""}) => acts.filter((act) => may(act.role)).map((act) =>
  html`<button type="button" key=${act.title} class=${act.name && !of ? "danger" : ""} aria-label=${of ? `${act.title} ${of}` : undefined} onClick=${() => open(act)}>${act.label || act.title}</button>`);

/** A button that opens a dialog of its own, for an act with input; nothing for a user whose role does not allow it. `children`: close => the dialog. */
export function Opener({label, role, children, ...more}) {
  const [isOpen, show] = useState(false);
  if (!may(role)) return null;
  return html`<button type="button" ...${more} onClick=${() => show(true)}>${label}</button>${isOpen && children(() => show(false))}`;
}

// The operations of one flow, and its history.
import {html} from "../lib/html.js";
import {path} from "../lib/api.js";
import {FlowFrame} from "../lib/flow.js";
import {useAnswer} from "../lib/live.js";
import {Answer, Moment} from "../lib/ui.js";
import {Operations} from "./operations.js";

function Parts({flow}) {
  const operations = useAnswer(path`flows/${flow}/operations`, {every: 3});
  const history = useAnswer(path`flows/${flow}/happened`, {every: 5});
  return html`<h2>Operations</h2>
    <${Answer} of=${operations} empty="The flow has had no operation.">${(rows) => html`<${Operations} rows=${rows} again=${operations.again}/>`}</${Answer}>
    <h2>History</h2>
    <${Answer} of=${history} empty="Nothing has happened yet.">${(events) => html`<ol class="plain happened" aria-label="history, newest first">${events.map((event) =>
      html`<li><${Moment} at=${event.at}/> <span class="badge">${event.what}</span> ${event.says}${event.by && html` <span class="quiet">by ${event.by}</span>`}${event.why && html`<div class="quiet">${event.why}</div>`}</li>`)}</ol>`}</${Answer}>`;
}

export default function FlowOperations({flow}) {
  return html`<${FlowFrame} flow=${flow} now="Operations">${() => html`<${Parts} flow=${flow}/>`}</${FlowFrame}>`;
}

// Where what runs differs from the flow file that it came from.
import {html} from "./html.js";
import {path} from "./api.js";
import {useAnswer} from "./live.js";
import {Sides} from "./sides.js";
import {Answer, Table} from "./ui.js";

/** The settings that commands have set otherwise than the file says, each with the command that undoes it. */
const Settings = ({rows}) => rows.length > 0 && html`<${Table} caption="set otherwise than in the file" rows=${rows} keyOf=${(row) => row.what} columns=${[
  {name: "setting", of: (row) => row.what}, {name: "in the file", of: (row) => row.file}, {name: "what runs", of: (row) => html`<strong>${row.runs}</strong>`}, {name: "as in the file again", of: (row) => row.undo && html`<code>${row.undo}</code>`}]}/>`;

function File({of}) {
  if (of.now === null) return html`<p class="quiet">${of.path} is not on the host of this master. To compare it, paste it on the page <a href="#/apply">Apply</a>.</p>`;
  return html`<${Sides} left=${{name: `version ${of.version}, as submitted`, text: of.text}} right=${{name: `${of.path} now`, text: of.now}} same=${`${of.path} is as it was submitted.`}/>`;
}

/** The differences of a flow. `stamp`: see useAnswer; `alone`: only what commands have set, for a page that compares a text itself. */
export function FileDifferences({flow, stamp, alone}) {
  const answer = useAnswer(path`flows/${flow}/file`, {stamp});
  return html`<${Answer} of=${answer}>${(of) => html`<${Settings} rows=${of.differences}/>${!of.differences.length && !alone && html`<p>No command has set anything otherwise than the file says.</p>`}${!alone && html`<${File} of=${of}/>`}`}</${Answer}>`;
}

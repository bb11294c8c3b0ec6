// The versions of a flow: who submitted each, when; the difference of two side by side; back to an earlier one.
import {html} from "../lib/html.js";
import {command} from "../lib/act.js";
import {path} from "../lib/api.js";
import {FileDifferences} from "../lib/file_differences.js";
import {FlowFrame, link} from "../lib/flow.js";
import {useAnswer} from "../lib/live.js";
import {Buttons, useAct} from "../lib/opener.js";
import {Sides} from "../lib/sides.js";
import {Answer, Moment, Table} from "../lib/ui.js";

/** What happens with a rollback, and how it is asked for. */
const rollback = (flow, version) => ({
  title: `roll back to ${version}`, label: "roll back", role: "editor", method: "POST", path: path`flows/${flow}/rollback`, body: {version}, name: flow,
  says: `Version ${version}, code and flow together, becomes the desired version, with those of the flows that were submitted with it. If rows would be read again or lost, it is refused, and says so.`,
  command: command("scribengin", "rollback", flow, version),
  after: (answer) => html`<p>${Object.entries(answer.versions).map(([name, number]) => `${name} is now wanted in version ${number}`).join("; ") || "Nothing has changed."}</p>`,
});

function Difference({flow, from, to}) {
  const before = useAnswer(path`flows/${flow}/versions/${from}/text`), after = useAnswer(path`flows/${flow}/versions/${to}/text`);
  const side = (answer) => ({name: `version ${answer.version}`, text: answer.text});
  return html`<h2>Version ${from} and version ${to}</h2>
    <${Answer} of=${before}>${(left) => html`<${Answer} of=${after}>${(right) => html`<${Sides} left=${side(left)} right=${side(right)} same="The flow files are the same; the versions differ in their code, their resources, or in nothing."/>`}</${Answer}>`}</${Answer}>`;
}

export default function Versions({flow, query}) {
  const versions = useAnswer(path`flows/${flow}/versions`, {every: 10});
  const [open, dialog] = useAct(versions.again);
  const from = query.get("from"), to = query.get("to");
  return html`<${FlowFrame} flow=${flow} now="Versions">${() => html`<${Answer} of=${versions} empty="no version">${(rows) => html`
    <${Table} caption="versions" rows=${rows} keyOf=${(row) => row.version} columns=${[
      {name: "version", of: (row) => html`${row.version}${row.wanted ? html` <span class="badge">wanted</span>` : ""}`}, {name: "by", of: (row) => row.by || "–"}, {name: "submitted", of: (row) => html`<${Moment} at=${row.at}/>`},
      {name: "tiers", of: (row) => row.tiers.join(", ")}, {name: "package", of: (row) => html`<code>${row.package.slice(0, 12)}</code>`},
      {name: "compare", of: (row) => row.version > 1 && rows.some((each) => each.version === row.version - 1) ? html`<a href=${link(flow, `/versions?from=${row.version - 1}&to=${row.version}`)}>with ${row.version - 1}</a>${row.wanted ? "" : html`, <a href=${link(flow, `/versions?from=${row.version}&to=${rows.find((each) => each.wanted)?.version ?? rows[0].version}`)}>with the wanted one</a>`}` : "–"},
      {name: "act", of: (row) => row.wanted ? "" : html`<${Buttons} acts=${[rollback(flow, row.version)]} open=${open}/>`}]}/>${dialog}
    ${from && to && html`<${Difference} flow=${flow} from=${from} to=${to}/>`}
    <h2>What runs, and its file</h2><${FileDifferences} flow=${flow} stamp=${rows.find((row) => row.wanted)?.version}/>`}</${Answer}>`}</${FlowFrame}>`;
}

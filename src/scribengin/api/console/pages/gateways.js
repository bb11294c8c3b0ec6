// The gateways by group, and the order in which the agents of a group use them.
import {Act, command} from "../lib/act.js";
import {html, useState} from "../lib/html.js";
import {path} from "../lib/api.js";
import {count} from "../lib/format.js";
import {useAnswer} from "../lib/live.js";
import {Opener} from "../lib/opener.js";
import {Answer, Moment, State, Table} from "../lib/ui.js";

const SAYS = "The next report of each agent brings it the new chain. Empty fields leave it to the gateways' own costs; what is not given here is no longer set.";

/** The dialog that sets costs, order and disabled gateways of a group. */
function SetChain({group, rows, onClose, onDone}) {
  const [costs, setCosts] = useState({});
  const [order, setOrder] = useState("");
  const [out, setOut] = useState(Object.fromEntries(rows.filter((row) => row.out).map((row) => [row.gateway, row.out])));
  const given = Object.entries(costs).filter(([, cost]) => cost !== "");
  const chain = order.split(",").map((name) => name.trim()).filter(Boolean);
  const off = Object.keys(out), reason = Object.values(out)[0] ?? "disabled";
  const act = {
    title: `set the chain of ${group}`, says: SAYS, role: "operator", method: "PUT", path: path`gateways/${group}/chain`, button: "set the chain",
    body: {costs: Object.fromEntries(given.map(([name, cost]) => [name, Number(cost)])), out: Object.fromEntries(off.map((name) => [name, reason])), chain},
    command: command("scribengin", "gateway", "set-chain", group, ...given.flatMap(([name, cost]) => ["--cost", `${name}=${cost}`]),
      ...(chain.length ? ["--order", chain.join(",")] : []), ...off.flatMap((name) => ["--disable", name]), ...(off.length ? ["--reason", reason] : [])),
    after: () => html`<p>The chain of ${group} is set.</p>`,
  };
  const disable = (name, yes) => setOut(Object.fromEntries(rows.map((row) => row.gateway).filter((each) => each === name ? yes : each in out).map((each) => [each, reason])));
  return html`<${Act} act=${act} onClose=${onClose} onDone=${onDone}>
    ${rows.map((row) => html`<div class="row" key=${row.gateway}><strong>${row.gateway}</strong>
      <label>cost <input type="number" min="0.001" step="any" placeholder=${row.cost} value=${costs[row.gateway] ?? ""} aria-label=${`cost of ${row.gateway}`} onInput=${(event) => setCosts({...costs, [row.gateway]: event.target.value})}/></label>
      <label><input type="checkbox" checked=${row.gateway in out} onChange=${(event) => disable(row.gateway, event.target.checked)}/> disable ${row.gateway}</label></div>`)}
    <p><label>order <input value=${order} placeholder=${rows.map((row) => row.gateway).join(",")} onInput=${(event) => setOrder(event.target.value)}/></label></p>
    ${off.length > 0 && html`<p><label>reason <input value=${reason} onInput=${(event) => setOut(Object.fromEntries(off.map((name) => [name, event.target.value])))}/></label></p>`}
  </${Act}>`;
}

export function Gateways() {
  const answer = useAnswer("gateways", {every: 5});
  return html`<${Answer} of=${answer} empty="No gateway is up. One is started with: scribengin gateway run">${(gateways) => {
    const groups = [...new Set(gateways.map((row) => row.group))].sort();
    return groups.map((group) => {
      const rows = gateways.filter((row) => row.group === group), name = group || "default";
      return html`<section key=${group} aria-label=${`group ${name}`}><div class="row"><h2 dir="auto">${group ? `Group ${group}` : "Gateways without a group"}</h2>
        <${Opener} label="set chain" role="operator" aria-label=${`set chain of ${name}`} onDone=${answer.again}>${(ends) => html`<${SetChain} group=${name} rows=${rows} ...${ends}/>`}</${Opener}></div>
        <${Table} caption=${`gateways of ${name}`} rows=${rows} keyOf=${(row) => row.gateway} columns=${[
          {name: "gateway", of: (row) => row.gateway}, {name: "state", of: (row) => row.out ? html`<${State} state="disabled"/> ${row.out}` : html`<${State} state="up"/>`},
          {name: "cost", kind: "number", of: (row) => String(row.cost)}, {name: "agents", kind: "number", of: (row) => count(row.agents)}, {name: "url", of: (row) => html`<code>${row.url}</code>`},
          {name: "host", of: (row) => row.host || "–"}, {name: "release", of: (row) => row.release || "–"}, {name: "since", of: (row) => html`<${Moment} at=${row.since}/>`}]}/></section>`;
    });
  }}</${Answer}>`;
}

// The tokens of the API: list, make, revoke.
import {Act, command} from "../lib/act.js";
import {html, useState} from "../lib/html.js";
import {path} from "../lib/api.js";
import {pairsOf, pairsText} from "../lib/format.js";
import {useAnswer} from "../lib/live.js";
import {Buttons, Opener, useAct} from "../lib/opener.js";
import {ROLES} from "../lib/session.js";
import {Answer, Copy, Moment, State, Table} from "../lib/ui.js";

const RIGHTS = {agent: "only send records to gateways", viewer: "read", operator: "also pause, resume, drain, stop", editor: "also submit and delete flows", admin: "everything"};

function Make({onClose, onDone}) {
  const [name, setName] = useState("");
  const [role, setRole] = useState("viewer");
  const [text, setText] = useState("");
  const [day, setDay] = useState("");
  const labels = pairsOf(text);
  const act = {
    title: "make a token", role: "admin", method: "POST", path: "tokens", disabled: !name.trim() || labels === null, body: {name: name.trim(), role, labels: labels ?? {}, until: day ? `${day}T00:00:00+00:00` : ""},
    command: command("scribengin", "token", "add", name.trim() || "NAME", "--role", role, ...Object.entries(labels ?? {}).flatMap(([label, value]) => ["--label", `${label}=${value}`]), ...(day ? ["--expires", day] : [])),
    after: (made) => html`<p><strong>The token is shown only now.</strong> It cannot be shown again.</p><${Copy} label="token" text=${made.token}/>`,
  };
  return html`<${Act} act=${act} onClose=${onClose} onDone=${onDone}>
    <p><label>name <input value=${name} maxlength="100" autocomplete="off" spellcheck=${false} onInput=${(event) => setName(event.target.value)}/></label></p>
    <p><label>role <select value=${role} onChange=${(event) => setRole(event.target.value)}>${ROLES.map((each) => html`<option value=${each}>${each}: ${RIGHTS[each]}</option>`)}</select></label></p>
    <p><label>labels <input value=${text} placeholder="team=shop, site=a" spellcheck=${false} onInput=${(event) => setText(event.target.value)}/></label> <span class="quiet">only flows with all of them; empty: all flows</span>
      ${labels === null && html` <span role="status">not valid: write LABEL=VALUE, LABEL=VALUE</span>`}</p>
    <p><label>expires <input type="date" value=${day} onInput=${(event) => setDay(event.target.value)}/></label> <span class="quiet">at the start of that day in UTC; empty: never</span></p>
  </${Act}>`;
}

const revoke = (name) => ({title: "revoke", says: `No master accepts the token ${name} any more.`, role: "admin", method: "DELETE", path: path`tokens/${name}`, command: command("scribengin", "token", "remove", name), name,
  after: () => html`<p>The token is revoked.</p>`});

const over = (row) => row.until && Date.parse(row.until) < Date.now();

export default function Tokens() {
  const answer = useAnswer("tokens", {every: 10});
  const [open, dialog] = useAct(answer.again);
  return html`<div class="row"><h1>Tokens</h1><${Opener} label="make a token" role="admin" onDone=${answer.again}>${(ends) => html`<${Make} ...${ends}/>`}</${Opener}></div>
    <${Answer} of=${answer} empty="There is no token: this master accepts requests of its own machine without one.">${(rows) => html`<${Table} caption="tokens" rows=${rows} keyOf=${(row) => row.id} columns=${[
      {name: "name", of: (row) => html`<strong>${row.name}</strong>`}, {name: "role", of: (row) => row.role}, {name: "labels", of: (row) => pairsText(row.labels) || html`<span class="quiet">all flows</span>`},
      {name: "made", of: (row) => html`<${Moment} at=${row.at}/>`}, {name: "until", of: (row) => row.until ? html`<${Moment} at=${row.until}/> ${over(row) && html`<${State} state="expired"/>`}` : "never expires"},
      {name: "acts", of: (row) => html`<${Buttons} acts=${[revoke(row.name)]} open=${open} of=${row.name}/>`}]}/>`}</${Answer}>${dialog}`;
}

// Replay and purge of dead letters.
import {html} from "./html.js";
import {Act, command} from "./act.js";
import {path} from "./api.js";
import {count} from "./format.js";
import {Opener} from "./opener.js";
import {PreviewedButton} from "./previewed.js";
import {visible} from "./record_bytes.js";
import {Moment} from "./ui.js";

const FLAGS = {query: "--query", step: "--step", reason: "--reason", since: "--since", until: "--until"};

/** The fields of a selection that are set: of `query`, `step`, `reason`, `prefix`, `since`, `until`. */
export const chosen = (which) => Object.fromEntries(["query", "step", "reason", "prefix", "since", "until"].filter((name) => which[name]).map((name) => [name, which[name]]));

/** A command for the selected dead letters. */
const lettersCommand = (verb, flow, which, ...more) =>
  command("scribengin", "dead-letter", verb, flow, which.prefix || "", ...Object.entries(FLAGS).flatMap(([name, flag]) => which[name] ? [flag, which[name]] : []), ...more);

const letters = (number) => html`<strong>${count(number)}</strong> dead letter${number === 1 ? "" : "s"}`;

const Late = ({late}) => late.map((each) => html`<p class="note" key=${each.query}>${letters(each.count)} behind the watermark ${each.watermark} of query ${each.query} would become late again.</p>`);

function Replayed({answer}) {
  return html`<p>${answer.dry_run ? "Would be replayed" : "Requested"}: ${letters(answer.replayed)}${answer.repaired ? `, ${count(answer.repaired)} of them repaired` : ""}${answer.already ? `; ${count(answer.already)} were requested before` : ""}.</p>
    ${answer.entering.map((each) => html`<p key=${each.query + each.at}>${letters(each.count)} in query ${each.query}: from ${each.at}</p>`)}
    <${Late} late=${answer.late}/>
    ${answer.refused > 0 && html`<p>${count(answer.refused)} stay:</p><ul>${answer.refusals.map((each) => html`<li key=${each.key}><code>${each.key}</code> <span dir="auto">${visible(each.why)}</span></li>`)}</ul>`}
    ${!answer.dry_run && answer.replayed > 0 && html`<p>${answer.running ? "The workers take them at their next look; a record that fails again becomes a new dead letter." : "The flow does not run: they are taken when it runs again."}</p>`}`;
}

/** Replay the selected dead letters. */
export function Replay({flow, which, label, main, onOpen, onDone}) {
  const act = {title: "replay", says: "Each dead letter is replayed once, from the step that refused it.", role: "operator", method: "POST", path: path`flows/${flow}/dead-letters/replays`, body: chosen(which),
    command: lettersCommand("replay", flow, which, "--yes"), after: (answer) => html`<${Replayed} answer=${answer}/>`};
  return html`<${PreviewedButton} act=${act} label=${label} main=${main} onOpen=${onOpen} onDone=${onDone} tells=${(answer) => html`<${Replayed} answer=${answer}/>`} allows=${(answer) => answer.replayed > 0}/>`;
}

function Purged({answer, flow, onDone}) {
  return html`<p>${answer.dry_run ? "Would be deleted" : "Deleted"}: ${letters(answer.purged)}${answer.unreplayed ? html`, <strong>${count(answer.unreplayed)} of them not replayed</strong>` : ", all of them replayed"}.</p>
    ${answer.trash && html`<p>They can be restored until <${Moment} at=${answer.trash.until}/>: <${UndoPurge} flow=${flow} id=${answer.trash.id} onDone=${onDone}/></p>`}`;
}

/** Delete the selected dead letters. The flow's name is typed first. */
export function Purge({flow, which, replayed, label, onDone}) {
  const act = {title: "purge", says: "Dead letters are deleted; their number stays in the ledger. They can be restored for 7 days. The flow must be stopped.", role: "operator", method: "POST",
    path: path`flows/${flow}/dead-letters/purges`, body: {...chosen(which), ...(replayed && {replayed})}, command: lettersCommand("purge", flow, which, ...(replayed ? ["--replayed"] : []), "--yes"), name: flow,
    after: (answer) => html`<${Purged} answer=${answer} flow=${flow} onDone=${onDone}/>`};
  return html`<${PreviewedButton} act=${act} label=${label} onDone=${onDone} tells=${(answer) => html`<${Purged} answer=${answer}/>`} allows=${(answer) => answer.purged > 0}/>`;
}

/** Restore what a purge deleted: the newest one, or the one of that id. */
export function UndoPurge({flow, id = "", onDone}) {
  const act = {title: "restore purged", says: id ? "The dead letters of this purge are restored." : "The dead letters that the newest purge deleted are restored. The flow must be stopped.", role: "operator", method: "POST",
    path: path`flows/${flow}/dead-letters/purges/undo`, body: id ? {id} : {}, command: command("scribengin", "dead-letter", "purge", flow, "--undo", id), button: "restore",
    after: (answer) => html`<p>Restored: ${letters(answer.restored)}${answer.expired ? `; ${count(answer.expired)} are expired` : ""}.</p>`};
  return html`<${Opener} label=${act.title} role=${act.role} onDone=${onDone}>${(ends) => html`<${Act} act=${act} ...${ends}/>`}</${Opener}>`;
}

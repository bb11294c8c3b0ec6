// The processes that served a flow: where each ran, what it did, what failed in it, and why it ended.
import {html} from "../lib/html.js";
import {path} from "../lib/api.js";
import {count, duration} from "../lib/format.js";
import {FlowFrame, link} from "../lib/flow.js";
import {useFlowAnswer} from "../lib/live.js";
import {visible} from "../lib/record_bytes.js";
import {Answer, Facts, Moment, State} from "../lib/ui.js";

const PLACE = /([^\s()]+\.py:\d+)/;

/** A cause, with the line of the user's file marked. */
function Cause({text}) {
  return html`<span dir="auto" class="cause">${visible(text).split(PLACE).map((part, nth) => nth % 2 ? html`<strong class="place">${part}</strong>` : part)}</span>`;
}

function Failures({failures}) {
  if (!failures.length) return null;
  return html`<h4>failures</h4><ol class="failures">${[...failures].reverse().map((each) => html`<li key=${each.at}><${Moment} at=${each.at}/> query ${each.query}, ${each.permanent ? "permanent" : "restarts automatically"}: <${Cause} text=${each.cause}/></li>`)}</ol>`;
}

function Attempt({attempt, flow, http}) {
  const end = attempt.ended ?? (attempt.state === "running" ? Date.now() / 1000 : null);
  return html`<article class="attempt" aria-label=${attempt.worker}><div class="row"><h3>${attempt.worker}</h3><${State} state=${attempt.state}/>
      <span>on ${attempt.node || "–"}${attempt.host && attempt.host !== attempt.node ? `, host ${attempt.host}` : ""}${attempt.pid ? `, process ${attempt.pid}` : ""}</span>
      ${attempt.state === "running" && html`<a href=${link(flow, `/logs?tier=${encodeURIComponent(attempt.tier)}`)}>log</a>`}
      ${http && html`<a href=${http} rel="noreferrer">status page, on host ${attempt.host} only</a>`}</div>
    ${attempt.ended !== null && html`<div class=${attempt.cause ? "fault" : "note"}><p>${attempt.cause ? html`<${Cause} text=${attempt.cause}/>` : "ended without a failure"}</p>${attempt.remedy && html`<p class="remedy">${attempt.remedy}</p>`}</div>`}
    ${attempt.state === "replaced" && html`<p class="note">Its end was not observed: another worker has replaced it.</p>`}
    <${Facts} pairs=${[["since", html`<${Moment} at=${attempt.since}/>`], ["until", attempt.ended !== null && html`<${Moment} at=${attempt.ended}/>`], ["for", end !== null && duration(end - attempt.since)],
      ["Batches", count(attempt.batches)], ["rows in", count(attempt.rows_in)], ["restarts of queries", count(attempt.restarts)], ["failures in a row", attempt.in_a_row ? count(attempt.in_a_row) : ""]]}/>
    <${Failures} failures=${attempt.failures}/></article>`;
}

function Tier({tier, attempts, flow}) {
  return html`<section aria-label=${`tier ${tier.tier}`}><div class="row"><h2>tier ${tier.tier}</h2><${State} state=${tier.state}/></div>
    <${Facts} pairs=${[["worker", tier.worker], ["next worker starts", tier.starts_again && html`<${Moment} at=${tier.starts_again}/>`], ["each query has worked", tier.ready === null ? "" : tier.ready ? "yes" : "not yet"],
      ["workers", tier.workers === "each" ? "one on each host of its group" : tier.workers > 1 && `${tier.wanted_workers} of ${tier.workers}`],
      ["standby", tier.standby && `${tier.standby.worker} on ${tier.standby.node}, ${tier.standby.state}`], ["autoscale", tier.autoscale && `${tier.autoscale.executors} executors, ${tier.autoscale.verdict}${tier.autoscale.why ? `: ${tier.autoscale.why}` : ""}`]]}/>
    ${attempts.length === 0 && html`<p class="quiet">No worker has served it yet.</p>`}
    ${attempts.map((each) => html`<${Attempt} key=${each.worker} attempt=${each} flow=${flow} http=${each.state === "running" && each.worker === tier.worker ? tier.http : ""}/>`)}</section>`;
}

/** The tiers of the flow, and those that only earlier versions had. */
function tiersOf(view, attempts) {
  const known = new Set(view.tiers.map((tier) => tier.tier));
  const old = [...new Set(attempts.map((each) => each.tier))].filter((tier) => !known.has(tier));
  return [...view.tiers, ...old.map((tier) => ({tier, state: "stopped", ready: null, workers: 0}))];
}

function Shown({flow, view}) {
  const attempts = useFlowAnswer(flow, path`flows/${flow}/attempts`);
  return html`<${Answer} of=${attempts}>${(all) => tiersOf(view, all).map((tier) => html`<${Tier} key=${tier.tier} tier=${tier} attempts=${all.filter((each) => each.tier === tier.tier)} flow=${flow}/>`)}</${Answer}>`;
}

export default function Workers({flow}) {
  return html`<${FlowFrame} flow=${flow} now="Workers">${(view) => html`<${Answer} of=${view}>${(data) => html`<${Shown} flow=${flow} view=${data}/>`}</${Answer}>`}</${FlowFrame}>`;
}

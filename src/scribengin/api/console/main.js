// The page: its frame, the session of its user, and which part is shown at which address.
import {Fault} from "./lib/ui.js";
import {html, render, useEffect, useRef, useState} from "./lib/html.js";
import {get, onSignedOut, send} from "./lib/api.js";
import {clock, duration, zone} from "./lib/format.js";
import {followFlows, lost, useAge, useStore} from "./lib/live.js";
import {may, session} from "./lib/session.js";

/** [pattern of the address, module, its place in the menu, its name]; a name in the pattern becomes a property of the page. */
const PAGES = [
  ["/", "fleet", "Fleet", "Fleet"],
  ["/flows/:flow", "flow", "Fleet", "Graph"],
  ["/flows/:flow/node/:node", "flow", "Fleet", "Node"],
  ["/flows/:flow/batches", "batches", "Fleet", "Batches"],
  ["/flows/:flow/workers", "workers", "Fleet", "Workers"],
  ["/flows/:flow/dead", "dead", "Fleet", "Dead letters"],
  ["/flows/:flow/dead/:letter", "dead", "Fleet", "Dead letter"],
  ["/flows/:flow/trace", "trace", "Fleet", "Trace"],
  ["/flows/:flow/positions", "positions", "Fleet", "Positions"],
  ["/flows/:flow/versions", "versions", "Fleet", "Versions"],
  ["/flows/:flow/operations", "flow_operations", "Fleet", "Operations"],
  ["/flows/:flow/logs", "logs", "Fleet", "Logs"],
  ["/apply", "apply", "Apply", "Apply"],
  ["/workflows", "workflows", "Workflows", "Workflows"],
  ["/workflows/:workflow", "workflows", "Workflows", "Workflow"],
  ["/operations", "operations", "Operations", "Operations"],
  ["/groups", "groups", "Groups", "Groups"],
  ["/agents", "agents", "Agents", "Agents"],
  ["/agents/:agent", "agent", "Agents", "Agent"],
  ["/hosts", "hosts", "Hosts", "Hosts"],
  ["/hosts/:node", "host", "Hosts", "Node"],
  ["/quotas", "quotas", "Quotas", "Quotas"],
  ["/peers", "peers", "Peers", "Peers"],
  ["/registry", "registry", "Registry", "Registry"],
  ["/registry/:path", "registry", "Registry", "Registry"],
  ["/tokens", "tokens", "Tokens", "Tokens"],
  ["/audit", "audit", "Audit", "Audit"],
];

/** [name, address, the role that it is for]. */
const MENU = [
  ["Fleet", "#/", "viewer"], ["Apply", "#/apply", "editor"], ["Workflows", "#/workflows", "viewer"], ["Operations", "#/operations", "viewer"], ["Groups", "#/groups", "viewer"], ["Quotas", "#/quotas", "viewer"],
  ["Agents", "#/agents", "viewer"], ["Hosts", "#/hosts", "viewer"], ["Peers", "#/peers", "viewer"], ["Registry", "#/registry", "admin"], ["Tokens", "#/tokens", "admin"], ["Audit", "#/audit", "admin"],
];

function found(hash) {
  const [path, query] = (hash.replace(/^#/, "") || "/").split("?");
  for (const [pattern, module, place, name] of PAGES) {
    const names = [];
    const shape = new RegExp(`^${pattern.replace(/:(\w+)/g, (_, each) => { names.push(each); return "([^/]+)"; })}$`);
    const match = shape.exec(path);
    if (match) {
      try {
        return {module, place, name, given: Object.fromEntries(names.map((each, nth) => [each, decodeURIComponent(match[nth + 1])])), query: new URLSearchParams(query)};
      } catch { break; }  // a % without a number
    }
  }
  return {module: null, place: "", name: "Nothing is here", given: {}, query: new URLSearchParams()};
}

/** The title of the document: what the page is about, then its name. */
const titled = ({name, given}) => `${[...Object.values(given).reverse(), name].join(", ")} – Scribengin`;

const modules = new Map();

function Page({hash}) {
  const {module, given, query} = found(hash);
  const [, set] = useState(modules.get(module));
  const [error, fail] = useState(null);
  useEffect(() => {
    fail(null);
    if (module === null) return set(null);
    if (modules.has(module)) return set(modules.get(module));
    import(`./pages/${module}.js`).then((made) => { modules.set(module, made); set(made); }, () => fail({message: "this page cannot be loaded", remedy: "load the console again"}));
    return undefined;
  }, [module]);
  if (module === null) return html`<h1>Nothing is here</h1><p>The address names no page. <a href="#/">Go to the fleet</a>.</p>`;
  if (error) return html`<${Fault} error=${error}/>`;
  const Shown = modules.get(module)?.default;
  return Shown ? html`<${Shown} ...${given} query=${query}/>` : html`<p class="quiet" aria-busy="true">loading …</p>`;
}

function SignIn({problem}) {
  const [error, fail] = useState(problem?.code === "session-over" ? problem : null);
  const [busy, work] = useState(false);
  async function enter(event) {
    event.preventDefault();
    work(true);
    try {
      session.set(await send("POST", "session", {token: new FormData(event.target).get("token")}));
    } catch (refused) {
      fail(refused);
    }
    work(false);
  }
  return html`<main class="sign-in" id="main"><h1>Sign in</h1>
    <form onSubmit=${enter}>
      <label for="token">Token</label>
      <input id="token" name="token" type="password" autocomplete="current-password" required autofocus/>
      <button disabled=${busy}>Sign in</button>
    </form>
    <${Fault} error=${error}/>
    <p class="quiet">A token is made with: <code>scribengin token add NAME --role viewer</code></p></main>`;
}

function Connection() {
  const since = useStore(lost), age = useAge(since);
  return html`<div role="status" class="connection">${since !== null && html`<p class="old">
    The connection to the master is lost: what is shown is of ${clock(since / 1000)}, ${duration(age)} ago. The page tries again by itself.</p>`}</div>`;
}

function Choices({redraw}) {
  const themes = ["auto", "light", "dark"];
  const [theme, setTheme] = useState(document.documentElement.dataset.theme || "auto");
  function next() {
    const chosen = themes[(themes.indexOf(theme) + 1) % 3];
    chooseTheme(chosen);
    setTheme(chosen);
  }
  function turn() {
    zone.name = zone.name === "utc" ? "local" : "utc";
    localStorage.setItem("scribengin.zone", zone.name);
    redraw();
  }
  const who = useStore(session);
  const leave = async () => { await send("DELETE", "session"); location.reload(); };
  return html`<div class="choices">
    <button type="button" onClick=${turn} title="the zone of all times">${zone.name === "utc" ? "UTC" : "local time"}</button>
    <button type="button" onClick=${next} title="light or dark">${theme}</button>
    ${who && html`<span class="who" title=${Object.entries(who.labels).map(([name, value]) => `${name}=${value}`).join(", ")}>${who.name}, ${who.role}</span>`}
    ${who?.signed_in && html`<button type="button" onClick=${leave}>sign out</button>`}
  </div>`;
}

function chooseTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  localStorage.setItem("scribengin.theme", theme);
}

function Console() {
  const [hash, setHash] = useState(location.hash);
  const [problem, refuse] = useState(null);
  const [turn, redraw] = useState(0);
  const who = useStore(session);
  const main = useRef(null), path = useRef(location.hash.split("?")[0]);
  useEffect(() => onSignedOut((refused) => { refuse(refused); session.set(null); }), []);
  useEffect(() => {
    get("session").then((seen) => session.set(seen), (error) => { if (error.status !== 401) refuse(error); });
  }, []);
  useEffect(() => {
    const moved = () => {
      setHash(location.hash);
      if (location.hash.split("?")[0] !== path.current) main.current?.focus({preventScroll: true});
      path.current = location.hash.split("?")[0];
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  useEffect(() => who === null ? undefined : followFlows(), [who === null]);
  useEffect(() => { document.title = who === null ? "Scribengin" : titled(found(hash)); }, [who === null, hash]);
  if (who === null && problem?.status === 401) return html`<${SignIn} problem=${problem}/>`;
  if (who === null && problem) return html`<main id="main"><h1>No answer</h1><${Fault} error=${problem}/><button type="button" onClick=${() => location.reload()}>try again</button></main>`;
  if (who === null) return html`<p class="quiet" aria-busy="true">loading …</p>`;
  const place = found(hash).place;
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>skip to the content</a>
    <header class="top"><a class="brand" href="#/">Scribengin</a>
      <nav aria-label="pages">${MENU.filter(([, , role]) => may(role)).map(([name, href]) => html`<a href=${href} aria-current=${name === place ? "page" : undefined}>${name}</a>`)}</nav>
      <${Choices} redraw=${() => redraw(turn + 1)}/></header>
    <${Connection}/>
    <main id="main" ref=${main} tabindex="-1" key=${turn}><${Page} hash=${hash}/></main>`;
}

chooseTheme(localStorage.getItem("scribengin.theme") || "auto");
render(html`<${Console}/>`, document.getElementById("console"));

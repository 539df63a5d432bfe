// The overview. It is told what happens after its cursor, and fetches the tables again when something did.
const AGAIN_MS = 1500;
const EVENTS_SHOWN = 60;
const ROWS_SHOWN = 1000;
const WORKFLOWS_SHOWN = 30; // the newest
const WORKTREES_SHOWN = 30;
const REPORTS_SHOWN = 20;
const ORDER = ["busy", "online", "offline"];
const GATHER_MS = 200; // events that come this close together are one reason to fetch the tables
const TABLES_MS = 12000; // a heartbeat that changes no status is no event
const at = (id) => document.getElementById(id);

async function ask(path, values = {}) {
  const query = new URLSearchParams(values).toString();
  const answer = await fetch(`/api/v1/${path}${query ? "?" + query : ""}`).catch(() => {
    throw new Error("No answer from the hub; trying again");
  });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(`${body.message}. ${body.hint}`), { body });
  return body;
}

// Every page of a list, up to what a person can look at.
async function all(path, key, values = {}) {
  const body = await ask(path, { limit: 500, ...values });
  while (body.next_offset !== null && body[key].length < ROWS_SHOWN) {
    const next = await ask(path, { limit: 500, offset: body.next_offset, ...values });
    body[key].push(...next[key]);
    body.next_offset = next.next_offset;
  }
  return body;
}

function element(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function row(cells) {
  const line = element("tr");
  for (const cell of cells) line.append(cell instanceof Node ? cell : element("td", cell ?? "–"));
  return line;
}

function ago(ms) {
  if (!ms) return "–";
  const seconds = Math.max(0, Math.round((Date.now() - ms) / 1000));
  if (seconds < 90) return `${seconds} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return new Date(ms).toLocaleString();
}

function fill(name, items, total, cells) {
  at(name).replaceChildren(...items.map((item) => row(cells(item))));
  at(`${name}-count`).textContent = items.length < total ? `${items.length} of ${total}` : total || "";
  at(`${name}-empty`).hidden = total > 0;
}

function titled(text, title) {
  const cell = element("td", text, "name");
  cell.title = title;
  return cell;
}

function status(thing) {
  const cell = element("td");
  cell.append(element("span", thing.status.replace("_", " "), `state ${thing.status}`));
  return cell;
}

function finished(workflow) {
  const cell = element("td");
  const bar = element("progress");
  bar.max = workflow.task_count || 1;
  bar.value = workflow.finished_count;
  bar.setAttribute("aria-label", `${workflow.name}: tasks finished`);
  cell.append(bar, element("span", ` ${workflow.finished_count} of ${workflow.task_count}`, "soft"));
  return cell;
}

function ruling(report) {
  const cell = element("td");
  const word = report.verdict ?? (report.error.length > 20 ? "failed" : report.error);
  cell.append(element("span", word.replace("_", " "), `state ${report.verdict ?? "failed"}`));
  cell.title = report.error ?? "";
  return cell;
}

// What the judge stopped, until a person lets it go on.
function showHalts(halted) {
  const texts = halted.workflows.map((one) => `${one.status_reason.replace("_", " ")} stopped “${one.name}” (${one.id}). crewhall report get shows a report.`);
  const hidden = halted.total - texts.length;
  if (hidden > 0) texts.push(`CRITICAL HALT of ${hidden} more: crewhall workflow list --halted-by judge`);
  at("halts").replaceChildren(...texts.map((text) => element("p", text)));
  at("halts").hidden = texts.length === 0;
}

const names = new Map();

function nameSubjects() {
  for (const node of at("events").querySelectorAll("[data-id]")) {
    node.textContent = names.get(node.dataset.id) ?? node.dataset.id;
  }
}

async function showTables() {
  const [agents, repositories, workflows, worktrees, reports, halted] = await Promise.all([
    all("agent/list", "agents"), all("repository/list", "repositories"), ask("workflow/list", { limit: WORKFLOWS_SHOWN }),
    ask("worktree/list", { limit: WORKTREES_SHOWN }), ask("report/list", { limit: REPORTS_SHOWN }),
    all("workflow/list", "workflows", { halted_by: "judge" }),
  ]);
  agents.agents.sort((one, other) => ORDER.indexOf(one.status) - ORDER.indexOf(other.status));
  fill("agents", agents.agents, agents.total, (agent) => [
    titled(agent.name, `${agent.name}, ${agent.id}`), status(agent), agent.runtime, agent.role, agent.current_task_id, ago(agent.last_heartbeat_at),
  ]);
  at("agents-how").hidden = agents.total > 0;
  for (const one of [...agents.agents, ...repositories.repositories, ...workflows.workflows]) names.set(one.id, one.name);
  for (const one of worktrees.worktrees) names.set(one.id, one.path.split("/").pop());
  for (const one of reports.reports) names.set(one.id, `${one.kind} of ${one.subject}`);
  nameSubjects();
  showHalts(halted);
  fill("reports", reports.reports, reports.spent.reports, (one) => [
    ruling(one), titled(one.subject, `${one.subject}, ${one.id}`), one.kind,
    `${(one.input_tokens + one.output_tokens).toLocaleString()} tokens, ${one.cost_usd.toFixed(2)} USD`, ago(one.created_at),
  ]);
  fill("workflows", workflows.workflows, workflows.total, (one) => [titled(one.name, `${one.name}, ${one.id}`), status(one), finished(one)]);
  fill("worktrees", worktrees.worktrees, worktrees.total, (one) => [
    element("td", one.path, "mono"), element("td", one.url ?? one.mcp.last_error, one.url ? "mono" : "soft"), one.mcp.connected_clients,
  ]);
  fill("repositories", repositories.repositories, repositories.total, (one) => [one.name, element("td", one.path, "mono")]);
}

function named(id) {
  const node = element("span", names.get(id) ?? id, "mono soft");
  node.dataset.id = node.title = id;
  return node;
}

function showEvent(event) {
  const line = element("li");
  const change = event.after_status && event.before_status !== event.after_status
    ? ` ${event.before_status ?? "new"} → ${event.after_status}` : "";
  line.append(
    element("strong", event.what), element("span", change), element("br"),
    element("span", `${new Date(event.at).toLocaleTimeString()} · `, "soft"),
    named(event.actor), element("span", " on ", "soft"), named(event.subject),
  );
  return line;
}

let cursor = null;
let fetching = null;

function showEvents(page) {
  cursor = page.cursor;
  at("events").prepend(...page.events.slice(-EVENTS_SHOWN).map(showEvent).reverse());
  while (at("events").children.length > EVENTS_SHOWN) at("events").lastChild.remove();
  showNewest(page.newest);
  fetchTables(GATHER_MS);
}

function showNewest(newest) {
  at("events-count").textContent = newest ? `${newest} so far` : "";
  at("events-empty").hidden = newest > 0;
}

function fetchTables(delay) {
  if (fetching !== null && delay > 0) return;
  clearTimeout(fetching);
  fetching = setTimeout(async () => {
    fetching = null;
    if (document.visibilityState === "visible") await showTables().catch((error) => trouble(error.message));
  }, delay);
}

function trouble(text) {
  at("trouble").textContent = text;
}

// From the hub's first answer until its connection ends; then again.
async function follow() {
  try {
    const hub = await ask("hub");
    at("hub").textContent = `${hub.hall} on ${hub.database}, version ${hub.version}`;
    cursor ??= Math.max(0, hub.newest_event - EVENTS_SHOWN);
    showNewest(hub.newest_event);
    await showTables();
    trouble("");
  } catch (error) {
    trouble(error.message);
    setTimeout(follow, AGAIN_MS);
    return;
  }
  const socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/api/v1/events?after=${cursor}`);
  socket.onmessage = (message) => {
    const page = JSON.parse(message.data);
    if (page.events?.length) showEvents(page);
    else if (page.code === "CURSOR_EXPIRED") cursor = page.oldest_cursor;
  };
  socket.onclose = () => {
    trouble("The hub has closed the connection; trying again");
    setTimeout(follow, AGAIN_MS);
  };
}

document.addEventListener("visibilitychange", () => fetchTables(0));
setInterval(() => fetchTables(0), TABLES_MS);
follow();

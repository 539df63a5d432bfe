// The overview. It asks for what happened since its cursor, and fetches the tables again when something did.
const EVERY_MS = 1500;
const EVENTS_SHOWN = 60;
const TABLES_EVERY = 8; // looks; a heartbeat that changes no status is no event
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

function status(agent) {
  const cell = element("td");
  cell.append(element("span", agent.status, `state ${agent.status}`));
  return cell;
}

const names = new Map();

function nameSubjects() {
  for (const node of at("events").querySelectorAll("[data-id]")) {
    node.textContent = names.get(node.dataset.id) ?? node.dataset.id;
  }
}

async function showTables() {
  const [agents, repositories] = await Promise.all([ask("agent/list", { limit: 100 }), ask("repository/list")]);
  fill("agents", agents.agents, agents.total, (agent) => [
    agent.name, status(agent), agent.runtime, agent.role, agent.current_task_id, ago(agent.last_heartbeat_at),
  ]);
  at("agents-how").hidden = agents.total > 0;
  for (const one of [...agents.agents, ...repositories.repositories]) names.set(one.id, one.name);
  nameSubjects();
  fill("repositories", repositories.repositories, repositories.total, (one) => [one.name, element("td", one.path, "mono")]);
}

function showEvent(event) {
  const line = element("li");
  const change = event.after_status && event.before_status !== event.after_status
    ? ` ${event.before_status ?? "new"} → ${event.after_status}` : "";
  line.append(
    element("strong", event.what), element("span", change), element("br"),
    element("span", `${new Date(event.at).toLocaleTimeString()} · ${event.actor} on `, "soft"),
    element("span", event.subject, "mono soft"),
  );
  line.lastChild.dataset.id = line.lastChild.title = event.subject;
  return line;
}

let cursor = null;
let looks = 0;

async function newEvents() {
  if (cursor === null) cursor = Math.max(0, (await ask("event/list", { limit: 1 })).newest - EVENTS_SHOWN);
  try {
    return await ask("event/list", { after: cursor, limit: 200 });
  } catch (error) {
    if (error.body?.code !== "CURSOR_EXPIRED") throw error;
    return ask("event/list", { after: error.body.oldest_cursor, limit: 200 });
  }
}

async function showEvents() {
  const page = await newEvents();
  cursor = page.cursor;
  at("events").prepend(...page.events.map(showEvent).reverse());
  while (at("events").children.length > EVENTS_SHOWN) at("events").lastChild.remove();
  at("events-count").textContent = page.newest ? `${page.newest} so far` : "";
  at("events-empty").hidden = page.newest > 0;
  return page.events.length > 0;
}

async function look(first) {
  try {
    if (first) {
      const hub = await ask("hub");
      at("hub").textContent = `${hub.hall} on ${hub.database}, version ${hub.version}`;
    }
    if (document.visibilityState === "visible" && ((await showEvents()) || first || ++looks % TABLES_EVERY === 0)) await showTables();
    at("trouble").textContent = "";
    first = false;
  } catch (error) {
    at("trouble").textContent = error.message;
  }
  setTimeout(look, EVERY_MS, first);
}

look(true);

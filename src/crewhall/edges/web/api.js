// The REST page: drawn from the hub's own OpenAPI description.
const element = (name, text, className) => {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
};

function kind(schema) {
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.type === "array") return `list of ${kind(schema.items ?? {})}`;
  return schema.type ?? "any";
}

function fields(schema) {
  const table = element("table");
  for (const [name, one] of Object.entries(schema.properties ?? {})) {
    const line = element("tr");
    const must = (schema.required ?? []).includes(name) ? " *" : "";
    const cell = element("td");
    cell.append(element("code", name + must));
    line.append(cell, element("td", kind(one), "mono"), element("td", one.description ?? ""));
    table.append(line);
  }
  return table;
}

function given(operation) {
  if (operation.requestBody) return operation.requestBody.content["application/json"].schema;
  const properties = Object.fromEntries(operation.parameters.map((one) => [one.name, one.schema]));
  return { properties, required: operation.parameters.filter((one) => one.required).map((one) => one.name) };
}

function route(path, method, operation) {
  const box = element("details");
  const head = element("summary");
  head.append(element("span", method, "method mono"), element("code", path), " ", element("span", operation.summary, "soft"));
  const input = given(operation);
  const output = operation.responses["200"].content["application/json"].schema;
  box.append(head, element("p", operation.description), element("h3", "Arguments"), fields(input), element("h3", "Result"), fields(output));
  return box;
}

document.getElementById("example").textContent = `curl '${location.origin}/api/v1/agent/list?status=online'`;

const answer = await fetch("/api/openapi.json");
const description = await answer.json();
if (!answer.ok) {
  const refused = element("p", `${description.message}: ${description.hint}`);
  refused.setAttribute("role", "alert");
  document.getElementById("routes").append(refused);
  throw new Error(description.message);
}
const nouns = new Map();
for (const [path, operations] of Object.entries(description.paths)) {
  const noun = operations.post.tags[0];
  if (!nouns.has(noun)) nouns.set(noun, []);
  // A tool that reads is there by both methods; two tools may share a path.
  const isOne = operations.get?.operationId === `${operations.post.operationId}_by_get`;
  if (isOne || !operations.get) nouns.get(noun).push(route(path, isOne ? "GET" : "POST", operations.post));
  else nouns.get(noun).push(route(path, "POST", operations.post), route(path, "GET", operations.get));
}
for (const [noun, routes] of nouns) {
  const section = element("section");
  section.append(element("h2", noun), ...routes);
  document.getElementById("routes").append(section);
}

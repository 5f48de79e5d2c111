// Writes what is generated before a build: the types of the wire from the published schema, and the icons that are used.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const here = new URL(".", import.meta.url);
const out = new URL("../src/generated/", here);
mkdirSync(out, { recursive: true });
writeFileSync(new URL("wire.ts", out), renderWire(readJson(new URL("../../docs/reference/gateway-asyncapi.json", here))));
writeFileSync(new URL("icons.ts", out), renderIcons(readJson(new URL("icons.json", here))));

function readJson(place) {
  return JSON.parse(readFileSync(place, "utf-8"));
}

function renderWire({ components: { messages, schemas } }) {
  const used = (names) => reachable(names.map((name) => messages[name].payload), schemas);
  const names = Object.keys(messages);
  const results = names.filter((name) => name.endsWith(".result"));
  const methods = results.map((name) => name.slice(0, -".result".length));
  const events = names.filter((name) => /^[a-z]/.test(name) && !name.endsWith(".result") && !methods.includes(name));
  const whole = used([...results, "Hello"]);
  const lines = ["// Generated from docs/reference/gateway-asyncapi.json by generate/generate.js.", ""];
  for (const [name, schema] of Object.entries(schemas)) lines.push(renderType(name, schema, whole.has(name)), "");
  const place = (name) => typeOf(messages[name].payload);
  lines.push("export interface Methods {");
  for (const name of methods) lines.push(`  "${name}": { params: ${place(name)}; result: ${place(`${name}.result`)} };`);
  lines.push("}", "", "export interface Events {");
  for (const name of events) lines.push(`  "${name}": ${place(name)};`);
  lines.push("}", "");
  return lines.join("\n");
}

/** The names of the schemas that values of these schemas contain. */
function reachable(found, schemas, names = new Set()) {
  for (const value of found) {
    if (value === null || typeof value !== "object") continue;
    const name = value.$ref && nameOf(value.$ref);
    if (name && !names.has(name)) reachable([schemas[name]], schemas, names.add(name));
    reachable(Object.values(value), schemas, names);
  }
  return names;
}

function nameOf(reference) {
  return reference.split("/").at(-1);
}

/** A schema's name as a type. Two modules have types of one name; that of the core gets its module as a prefix. */
function identifier(name) {
  const plain = name.replace(/^wire\./, "").replace(/^retinue[._]wire[._]\w+?[._](?=[A-Z])/, "");
  return plain
    .replace(/^retinue[._]\w+?[._]([a-z])(\w*?)[._](?=[A-Z])/, (_, first, rest) => first.toUpperCase() + rest)
    .replace(/\W+/g, "_");
}

/** A field with a default is always sent in a result, but may be left out of parameters. */
function renderType(name, schema, isWhole) {
  if (schema.type !== "object" || !schema.properties) return `export type ${identifier(name)} = ${typeOf(schema)};`;
  const lines = [`export interface ${identifier(name)} {`];
  for (const [field, value] of Object.entries(schema.properties)) {
    const optional = isWhole || schema.required?.includes(field) ? "" : "?";
    lines.push(`  ${JSON.stringify(field)}${optional}: ${typeOf(value)};`);
  }
  return [...lines, "}"].join("\n");
}

function typeOf(schema) {
  if (schema.$ref) return identifier(nameOf(schema.$ref));
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" | ");
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.prefixItems) return `[${schema.prefixItems.map(typeOf).join(", ")}]`;
  if (Array.isArray(schema.type)) return schema.type.map((type) => typeOf({ ...schema, type })).join(" | ");
  switch (schema.type) {
    case "array":
      return `(${schema.items ? typeOf(schema.items) : "unknown"})[]`;
    case "object":
      return `Record<string, ${schema.additionalProperties ? typeOf(schema.additionalProperties) : "any"}>`;
    case "integer":
      return "number";
    case "string":
    case "number":
    case "boolean":
    case "null":
      return schema.type;
    default:
      return "any";
  }
}

function renderIcons(names) {
  const { icons, aliases } = createRequire(import.meta.url)("@iconify-json/lucide/icons.json");
  const shapes = (name) => {
    const icon = icons[name] ?? icons[aliases?.[name]?.parent];
    if (!icon) throw new Error(`There is no icon named ${name}.`);
    const drawn = [...icon.body.matchAll(/<(path|circle|rect|line|ellipse|polyline|polygon)\s([^>]*?)\/?>/g)];
    return drawn.map(([, tag, written]) => {
      const given = [...written.matchAll(/([\w-]+)="([^"]*)"/g)].map(([, key, value]) => [key, value]);
      return [tag, Object.fromEntries(given.filter(([key]) => !/^(fill|stroke.*)$/.test(key)))];
    });
  };
  const entries = names.map((name) => `  ${JSON.stringify(name)}: ${JSON.stringify(shapes(name))},`);
  return [
    "// Generated from the icon set Lucide by generate/generate.js.",
    "",
    "export const ICONS = {",
    ...entries,
    "} as const;",
    "",
    "export type IconName = keyof typeof ICONS;",
    "",
  ].join("\n");
}

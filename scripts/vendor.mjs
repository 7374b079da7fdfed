// Copies what the dashboard loads from node_modules into a folder: the files that package.json
// names under "vendor", and the licences of every package that those files bundle.
// Usage: node scripts/vendor.mjs FOLDER

import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";

const folder = process.argv[2];
if (!folder) throw new Error("usage: node scripts/vendor.mjs FOLDER");

const NOT_BUNDLED = new Set(["@scarf/scarf"]); // counts installations of Swagger UI; nothing of it is copied

const manifest = (at) => JSON.parse(readFileSync(join(at, "package.json"), "utf8"));
const root = manifest(".");

/** The folders of all packages that the named ones need, by name; a nested copy hides the outer one. */
function bundled(names, from, found = new Map()) {
  for (const name of names) {
    const nested = join(from, "node_modules", name);
    const place = existsSync(nested) ? nested : join("node_modules", name);
    if (found.has(place) || NOT_BUNDLED.has(name)) continue;
    found.set(place, manifest(place));
    bundled(Object.keys(found.get(place).dependencies ?? {}), place, found);
  }
  return found;
}

function licence([place, { name, version, license, homepage }]) {
  const files = readdirSync(place).filter((it) => /^(licen[cs]e|copying|notice)/i.test(it)).sort();
  const texts = files.map((it) => readFileSync(join(place, it), "utf8").trim());
  const text = texts.join("\n\n") || "The package has no licence file.";
  return `${name} ${version} (${license})\n${homepage ?? ""}\n\n${text}\n`;
}

mkdirSync(folder, { recursive: true });
for (const file of root.vendor) copyFileSync(join("node_modules", file), join(folder, basename(file)));

// Some bundles come with the licences of what is in them.
const inside = root.vendor.map((file) => join("node_modules", `${file}.LICENSE.txt`)).filter(existsSync);
const packages = [...bundled(Object.keys(root.dependencies), ".")].sort(([a], [b]) => (a < b ? -1 : 1));
const line = "\n" + "-".repeat(80) + "\n\n";
writeFileSync(
  join(folder, "LICENSES.txt"),
  ["The scripts in this folder contain these packages.\n", ...packages.map(licence), ...inside.map((it) => readFileSync(it, "utf8"))].join(line),
);

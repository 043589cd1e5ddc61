// The page in a browser, as people use it: `just page`, and its short part in tests/external/page.
//
//   node tools/page_walk/main.mjs --trawl PATH --browser PATH [--only modules,scan,runs,names,cluster,looks,memory] [--shots DIR] [--minutes N] [--write FILE]
//
// --write keeps the figures of the part memory as JSON.
// TRAWL_PAGE_FILES=front/page serves the page's files from there, so that work on them needs no build.
// TRAWL_NODE_MODULES: a folder with the packages, as tools/get-node-modules prints it.

import { mkdirSync } from "node:fs";
import { parseArgs } from "node:util";

import { clusterWalk } from "./cluster.mjs";
import { looksWalk } from "./looks.mjs";
import { memoryWalk } from "./memory.mjs";
import { modulesWalk } from "./modules.mjs";
import { namesWalk } from "./names.mjs";
import { runsWalk } from "./runs.mjs";
import { scanWalk } from "./scan.mjs";
import { createBrowser, createChecks } from "./stage.mjs";

const { values: options } = parseArgs({
  options: {
    trawl: { type: "string" }, browser: { type: "string" }, only: { type: "string", default: "modules,scan,runs,names,cluster,looks" },
    shots: { type: "string", default: "target/page" }, minutes: { type: "string", default: "3" }, write: { type: "string" },
  },
});
const PARTS = { modules: modulesWalk, scan: scanWalk, runs: runsWalk, names: namesWalk, cluster: clusterWalk, looks: looksWalk, memory: memoryWalk };

mkdirSync(options.shots, { recursive: true });
const checks = createChecks();
const world = await createBrowser(options.browser);
try {
  for (const name of options.only.split(",")) {
    if (!PARTS[name]) throw new Error(`no part '${name}'; there are ${Object.keys(PARTS).join(", ")}`);
    const begun = Date.now();
    console.log(`${name}:`);
    try {
      await PARTS[name]({ ...options, world, check: checks.check });
    } catch (error) {
      checks.check(`${name} goes through`, false, error.stack);
      for (const context of world.browser.contexts()) {
        for (const page of context.pages()) await page.screenshot({ path: `${options.shots}/failed-${name}.png` }).catch(() => {});
      }
    }
    for (const context of world.browser.contexts()) await context.close();
    checks.check(`${name}: no error in the page`, world.errors.length === 0, world.errors.splice(0).join("; "));
    console.log(`  ${((Date.now() - begun) / 1000).toFixed(1)} s`);
  }
} finally {
  await world.stop();
}
process.exit(checks.end() ? 0 : 1);

// Packs a folder of functions as `firebase deploy` would, with firebase-tools' own packager, and
// prints the zip's path. node pack.js FIREBASE_TOOLS PROJECT, whose firebase.json has the codebase counters.
const path = require("path");
const fs = require("fs");

const [tools, project] = process.argv.slice(2);
const packager = require(path.join(tools, "lib/deploy/functions/prepareFunctionsUpload"));
const { functions } = JSON.parse(fs.readFileSync(path.join(project, "firebase.json")));
const config = functions.find((entry) => entry.codebase === "counters");

packager
  .prepareFunctionsUpload(project, path.join(project, config.source), config, [], undefined)
  .then(({ pathToSource }) => console.log(pathToSource));

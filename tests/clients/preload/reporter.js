// For mocha: leaves tests out, and writes what came of each. $KEDIS_LEFT_OUT is JSON, regular expressions for
// file and title; $KEDIS_RESULTS is the file of results.
"use strict";

const { appendFileSync } = require("fs");
const { relative } = require("path");

const leftOut = JSON.parse(process.env.KEDIS_LEFT_OUT).map((text) => new RegExp(`^(?:${text})$`, "s"));

function name(test) {
  const file = test.file ? relative(process.cwd(), test.file) : "";
  return `${file}: ${test.titlePath().join(" / ")}`;
}

function write(test, outcome, text = "") {
  appendFileSync(process.env.KEDIS_RESULTS, JSON.stringify([name(test), outcome, text]) + "\n");
}

function prune(suite) {
  suite.tests = suite.tests.filter((test) => {
    const gone = leftOut.some((entry) => entry.test(name(test)));
    if (gone) {
      write(test, "left out");
    }
    return !gone;
  });
  suite.suites.forEach(prune);
}

module.exports = function (runner) {
  prune(runner.suite);
  runner.on("pass", (test) => write(test, "passed"));
  runner.on("pending", (test) => write(test, "skipped", "pending"));
  runner.on("fail", (test, error) => write(test, "failed", `${error.stack || error}`));
};

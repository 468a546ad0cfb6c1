// For Node: leads connections to our servers. $KEDIS_PORTS is JSON: the ports that a suite knows, and ours.
"use strict";

const { Socket } = require("net");

const ports = JSON.parse(process.env.KEDIS_PORTS);
const connect = Socket.prototype.connect;

Socket.prototype.connect = function (...words) {
  // net.connect() hands over its words as one array.
  const inner = Array.isArray(words[0]) ? words[0] : words;
  const options = inner[0];
  if (options && typeof options === "object" && ports[options.port]) {
    inner[0] = { ...options, host: "127.0.0.1", port: ports[options.port] };
  } else if (ports[options]) {
    inner[0] = ports[options];
  }
  return connect.apply(this, words);
};

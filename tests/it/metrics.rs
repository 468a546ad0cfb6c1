//! Metrics and health checks over HTTP.
//!
//! - this file: the page of metrics, and what INFO says
//! - `hostile`: clients that do what they should not
//! - `health`: whether the server lives and is ready
//! - `page`: a page, read strictly
//! - `client`: an HTTP client

mod client;
mod health;
mod hostile;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use client::Http;
use page::Page;

use crate::support::server::{Port, free_port};
use crate::support::{Conn, Server, wait_for};

/// A server with metrics on a port.
struct Observed {
    server: Server,
    port: Port,
}

impl Observed {
    fn start(flags: &[&str]) -> Observed {
        Observed::of(Server::prepare(flags))
    }

    /// Starts a server that is prepared.
    fn of(mut server: Server) -> Observed {
        let port = free_port();
        server
            .flags
            .extend(["--metrics-port".into(), port.to_string()]);
        server.spawn();
        Observed { server, port }
    }

    fn http(&self) -> Http {
        Http::open(*self.port).expect("a connection")
    }

    /// The page of metrics.
    fn page(&self) -> Page {
        let response = self.http().get("/metrics", "").unwrap();
        assert_eq!(response.status, 200);
        Page::read(&response.body, false)
    }

    /// Waits for a page that passes, since a page may be some milliseconds old.
    fn page_with(&self, what: &str, passes: impl Fn(&Page) -> bool) -> Page {
        let mut page = self.page();
        wait_for(what, || {
            page = self.page();
            passes(&page)
        });
        page
    }
}

/// A metric of the manual's list.
#[derive(Debug)]
struct Listed {
    kind: String,
    labels: BTreeSet<String>,
    info: Option<String>,
}

/// The metrics that the manual lists, by name.
fn listed() -> BTreeMap<String, Listed> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manual/metrics.md");
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| `")?.split(" | ").collect();
        let [name, kind, labels, info, _] = cells.as_slice() else {
            return None;
        };
        let in_code = |text: &str| {
            text.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect()
        };
        let info: Vec<String> = in_code(info);
        let labels: Vec<String> = in_code(labels);
        let listed = Listed {
            kind: (*kind).to_owned(),
            labels: labels.into_iter().collect(),
            info: info.into_iter().next(),
        };
        Some((name.trim_end_matches('`').to_owned(), listed))
    });
    let is_type = |kind: &str| ["counter", "gauge", "histogram"].contains(&kind);
    lines.filter(|(_, listed)| is_type(&listed.kind)).collect()
}

/// Requests of all sorts.
fn use_it(conn: &mut Conn) {
    for db in [0, 3] {
        conn.must(&format!("SELECT {db}"));
        for n in 0..200 {
            conn.must(&format!("SET key:{n} {n}"));
        }
        conn.must("SET short x PX 100000");
        conn.must("HSET hash a 1 b 2");
        conn.must("HEXPIRE hash 1000 FIELDS 1 a");
        conn.must("GET key:1");
        conn.must("GET nothing");
        conn.must("INCR key:1");
    }
    conn.cmd("INCR hash");
    conn.cmd("SET");
    conn.cmd("\"odd \\\" name\"");
    conn.call(&["EVAL", "return redis.error_reply('A\"B\\\\ x')", "0"]);
    conn.must("SAVE");
    conn.must("BGREWRITEAOF");
    conn.must("SUBSCRIBE channel");
    conn.must("UNSUBSCRIBE channel");
}

#[test]
fn the_page_has_all_that_the_manual_lists_in_either_format() {
    let observed = Observed::start(&["--databases", "16"]);
    let mut conn = observed.server.connect();
    use_it(&mut conn);
    let text = "text/plain; version=0.0.4; charset=utf-8";
    let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let wants_open =
        "Accept: application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5\r\n";
    let listed = listed();
    assert!(listed.len() > 120, "{}", listed.len());
    // Only replicas have these.
    let of_links =
        |name: &str| name.starts_with("kedis_link_") || name.starts_with("kedis_replica_");
    for (accept, content_type, is_open) in [("", text, false), (wants_open, open, true)] {
        let response = observed.http().get("/metrics", accept).unwrap();
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), Some(content_type));
        let page = Page::read(&response.body, is_open);
        for (name, family) in &page.families {
            let listed = listed
                .get(name)
                .unwrap_or_else(|| panic!("{name} is not listed"));
            assert_eq!(listed.kind, family.kind, "{name}");
            for (_, labels, _) in &family.samples {
                let labels = labels.keys().filter(|label| *label != "le").cloned();
                assert_eq!(
                    labels.collect::<BTreeSet<String>>(),
                    listed.labels,
                    "{name}"
                );
            }
        }
        let optional = [
            "process_open_fds",
            "kedis_reclaim_backlog",
            "kedis_commands_slow_total",
            "kedis_block_cache_hits_total",
            "kedis_block_cache_misses_total",
        ];
        let absent = listed.keys().filter(|name| {
            !page.families.contains_key(*name)
                && !of_links(name)
                && !optional.contains(&name.as_str())
        });
        let absent: Vec<&String> = absent.collect();
        assert!(absent.is_empty(), "{absent:?}");
        assert_eq!(
            page.labelled("kedis_errors_total", "code", "A\"B\\"),
            Some(1.0)
        );
    }
}

/// The numbers of INFO's fields.
fn info(conn: &mut Conn) -> BTreeMap<String, f64> {
    let text = conn.must("INFO everything").text();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let numbers =
        fields.filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)));
    numbers.collect()
}

/// Both read the same sources: between two INFOs a metric lies between what they say.
#[test]
fn info_says_the_same() {
    let observed = Observed::start(&[]);
    let mut conn = observed.server.connect();
    use_it(&mut conn);
    let listed = listed();
    let same: Vec<(&String, &String)> = listed
        .iter()
        .filter_map(|(name, listed)| Some((name, listed.info.as_ref()?)))
        .collect();
    assert!(same.len() > 60, "{}", same.len());
    let mut differ = Vec::new();
    wait_for("the same figures", || {
        let before = info(&mut conn);
        let page = observed.page();
        let after = info(&mut conn);
        differ.clear();
        for (name, field) in &same {
            let figures = (before.get(*field), page.value(name), after.get(*field));
            let is_same = match figures {
                (Some(before), Some(now), Some(after)) => {
                    (before.min(*after)..=before.max(*after)).contains(&now)
                }
                _ => false,
            };
            if !is_same {
                differ.push(format!("{name}, {field}: {figures:?}"));
            }
        }
        if !differ.is_empty() {
            println!("{differ:#?}");
        }
        differ.is_empty()
    });
}

/// The fields of lines such as `cmdstat_get:calls=1,usec=2`.
fn parts(conn: &mut Conn, section: &str) -> BTreeMap<String, BTreeMap<String, f64>> {
    let text = conn.must(&format!("INFO {section}")).text();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let parsed = lines.map(|(name, fields)| {
        let fields = fields.trim().split(',').filter_map(|field| {
            let (name, value) = field.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        (name.to_owned(), fields.collect())
    });
    parsed.collect()
}

#[test]
fn commands_errors_and_dbs_have_the_figures_of_info() {
    let observed = Observed::start(&[]);
    let mut conn = observed.server.connect();
    use_it(&mut conn);
    let commands = parts(&mut conn, "commandstats");
    assert!(commands.contains_key("cmdstat_set"), "{commands:?}");
    let page = observed.page_with("the figures", |page| {
        let pairs = [
            ("calls", "kedis_commands_total"),
            ("failed_calls", "kedis_commands_failed_total"),
            ("rejected_calls", "kedis_commands_rejected_total"),
        ];
        pairs.iter().all(|(field, metric)| {
            let is_same = |(name, fields): (&String, &BTreeMap<String, f64>)| {
                let command = name.trim_start_matches("cmdstat_");
                // INFO itself has gone on.
                command == "info"
                    || page.labelled(metric, "command", command) == fields.get(*field).copied()
            };
            commands.iter().all(is_same)
        })
    });
    for (name, fields) in parts(&mut conn, "errorstats") {
        let code = name.trim_start_matches("errorstat_");
        // INFO replaces some characters.
        let found = page.labelled("kedis_errors_total", "code", code);
        assert_eq!(found, fields.get("count").copied(), "{name}");
    }
    let dbs = parts(&mut conn, "keyspace");
    let dbs: Vec<_> = dbs
        .iter()
        .filter(|(name, _)| name.starts_with("db"))
        .collect();
    assert_eq!(dbs.len(), 2);
    for (name, fields) in dbs {
        let db = name.trim_start_matches("db");
        for (field, metric) in [
            ("keys", "kedis_db_keys"),
            ("expires", "kedis_db_keys_expiring"),
            ("subexpiry", "kedis_db_keys_with_timed_elements"),
        ] {
            let found = page.labelled(metric, "db", db);
            assert_eq!(found, fields.get(field).copied(), "{name} {field}");
        }
    }
    // The times of a command: as many as calls, and in all what INFO says.
    let name = "kedis_command_duration_seconds";
    let of_set = |suffix: &str| {
        let mut samples = page.samples(name).iter();
        let found = samples.find(|(of, labels, _)| of == suffix && labels["command"] == "set");
        found.unwrap().2
    };
    let set = &commands["cmdstat_set"];
    assert_eq!(of_set("_count"), set["calls"]);
    assert!((of_set("_sum") * 1e6 - set["usec"]).abs() < 1.0);
}

#[test]
fn without_latency_tracking_there_are_no_histograms_of_commands() {
    let observed = Observed::start(&["--latency-tracking", "no"]);
    let mut conn = observed.server.connect();
    for n in 0..100 {
        conn.must(&format!("SET k {n}"));
    }
    let name = "kedis_command_duration_seconds";
    assert!(observed.page().samples(name).is_empty());
    conn.must("CONFIG SET latency-tracking yes");
    conn.must("GET k");
    let page = observed.page_with("a histogram", |page| !page.samples(name).is_empty());
    // Calls that were not timed are in none of its numbers.
    let sums = page.samples(name).iter().filter(|(of, labels, _)| {
        ["_sum", "_count"].contains(&of.as_str()) && labels["command"] == "set"
    });
    assert!(sums.map(|(.., value)| *value).all(|value| value == 0.0));
}

#[test]
fn threads_ticks_commits_and_syncs_are_counted() {
    let observed = Observed::start(&["--appendfsync", "always", "--io-threads", "2"]);
    let mut conn = observed.server.connect();
    for n in 0..100 {
        conn.must(&format!("SET k{n} v"));
        conn.must(&format!("GET k{n}"));
    }
    let count = |page: &Page, name: &str| {
        let mut samples = page.samples(name).iter();
        samples
            .find(|(of, ..)| of == "_count")
            .map_or(0.0, |(.., value)| *value)
    };
    let page = observed.page_with("figures", |page| {
        count(page, "kedis_commit_duration_seconds") >= 100.0
            && count(page, "kedis_sync_duration_seconds") >= 1.0
            && count(page, "kedis_tick_commands") >= 200.0
            && page.value("kedis_row_cache_hits_total") >= Some(100.0)
    });
    for thread in [
        "main", "io-0", "io-1", "worker-0", "reader", "metrics", "memory", "expire",
    ] {
        let found = page.labelled("kedis_thread_cpu_seconds_total", "thread", thread);
        assert!(
            found.is_some(),
            "{thread}: {:?}",
            page.samples("kedis_thread_cpu_seconds_total")
        );
    }
    let ticks: f64 = page
        .samples("kedis_thread_ticks_total")
        .iter()
        .map(|(.., n)| n)
        .sum();
    assert_eq!(ticks, count(&page, "kedis_tick_duration_seconds"));
    let commands: f64 = page
        .samples("kedis_thread_commands_total")
        .iter()
        .map(|(.., n)| n)
        .sum();
    assert!(commands >= 200.0, "{commands}");
}

#[test]
fn replicas_and_links_are_shown() {
    let master = Observed::start(&[]);
    let replica = Observed::start(&[]);
    let mut conn = master.server.connect();
    assert_eq!(master.page().value("kedis_link_up"), None);
    crate::replication::follow(&replica.server, &master.server);
    conn.must("SET a 1");
    let page = replica.page_with("the link", |page| page.value("kedis_link_up") == Some(1.0));
    assert_eq!(page.value("kedis_replication_is_replica"), Some(1.0));
    let is_level = |page: &Page| page.value("kedis_link_lag_bytes") == Some(0.0);
    replica.page_with("no lag", is_level);
    let page = master.page_with("the replica", |page| {
        let port = format!("127.0.0.1:{}", replica.server.port());
        page.labelled("kedis_replica_online", "replica", &port) == Some(1.0)
            && page.labelled("kedis_replica_lag_bytes", "replica", &port) == Some(0.0)
    });
    assert_eq!(page.value("kedis_replication_replicas"), Some(1.0));
    assert_eq!(page.samples("kedis_replica_silent_seconds").len(), 1);
}

#[test]
fn what_rocksdb_does_is_counted() {
    let flags = [
        "--rocksdb.write-buffer-size",
        "64kb",
        "--row-cache-share",
        "0",
        "--rocksdb.statistics",
        "yes",
    ];
    let mut observed = Observed::start(&flags);
    let mut conn = observed.server.connect();
    let value = "v".repeat(4096);
    for n in 0..2000 {
        conn.call(&["SET", &format!("key:{}", n % 500), &value]);
    }
    conn.must("BGREWRITEAOF");
    let done = |page: &Page| {
        page.value("kedis_rocksdb_flushes_total") > Some(0.0)
            && page.value("kedis_rocksdb_compactions_total") > Some(0.0)
            && page.value("kedis_rocksdb_compactions_running") == Some(0.0)
            && page.value("kedis_rocksdb_stall") == Some(0.0)
    };
    observed.page_with("flushes and compactions", done);
    let page = observed.page();
    let files: f64 = page
        .samples("kedis_rocksdb_level_files")
        .iter()
        .map(|(.., n)| n)
        .sum();
    assert!(files > 0.0);
    let by = |by| {
        page.labelled("kedis_rocksdb_written_bytes_total", "by", by)
            .unwrap()
    };
    assert!(by("flush") > 0.0 && by("compaction") > 0.0);
    assert!(page.value("kedis_rocksdb_write_amplification_ratio") > Some(1.0));
    assert!(page.value("kedis_commit_bytes_total") > Some(2000.0 * 4096.0));
    // From tables alone.
    observed.server.restart();
    let mut conn = observed.server.connect();
    for n in 0..500 {
        conn.must(&format!("GET key:{n}"));
    }
    observed.page_with("reads of blocks", |page| {
        page.value("kedis_block_cache_hits_total") > Some(0.0)
            && page.value("kedis_block_cache_misses_total") > Some(0.0)
            && page.value("kedis_block_reads_total") > Some(0.0)
            && page.value("kedis_row_cache_misses_total") >= Some(500.0)
    });
}

#[test]
fn a_unix_socket_with_permissions() {
    let mut server = Server::prepare(&["--metrics-unixsocket", "m.sock"]);
    server
        .flags
        .extend(["--metrics-unixsocketperm".into(), "700".into()]);
    server.spawn();
    let path = server.data_dir().join("m.sock");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let response = Http::open_unix(&path).unwrap().get("/metrics", "").unwrap();
    Page::read(&response.body, false);
    server.terminate();
    assert!(!path.exists());
    // One that a killed server has left is replaced.
    server.spawn();
    server.kill9();
    assert!(path.exists());
    server.spawn();
    assert_eq!(
        Http::open_unix(&path)
            .unwrap()
            .get("/healthz", "")
            .unwrap()
            .status,
        200
    );
}

#[test]
fn an_address_that_cannot_be_bound_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = taken.local_addr().unwrap().port().to_string();
    let dir = tempfile::tempdir().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let file = file.path().to_str().unwrap();
    let port = free_port();
    for (flags, words) in [
        (
            vec!["--metrics-port", &in_use],
            [
                "metrics-port",
                "listens there: stop it, or choose another port",
            ],
        ),
        (
            vec!["--metrics-unixsocket", "/nowhere/socket"],
            ["metrics-unixsocket", "its directory must exist"],
        ),
        (
            vec!["--metrics-unixsocket", file],
            ["metrics-unixsocket", "a file and no socket"],
        ),
        (
            vec!["--metrics-port", &in_use, "--metrics-bind", "203.0.113.7"],
            ["metrics-bind", "203.0.113.7"],
        ),
    ] {
        let output = Command::output(&mut Server::command(dir.path(), *port, &flags)).unwrap();
        assert!(!output.status.success());
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
    // An address that the machine does not have may be marked as optional.
    let free = free_port();
    let bind = "127.0.0.1 -203.0.113.7";
    let flags = ["--metrics-port", &free.to_string(), "--metrics-bind", bind];
    let _server = Server::start(&flags);
    assert_eq!(
        Http::open(*free)
            .unwrap()
            .get("/healthz", "")
            .unwrap()
            .status,
        200
    );
}

/// What the rules for alerts and the dashboard ask for.
#[test]
fn alerts_and_dashboard_name_metrics_that_there_are() {
    let listed = listed();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/metrics");
    for file in ["kedis-alerts.yml", "kedis-grafana.json"] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !is_part(c));
        let named: BTreeSet<&str> = words
            .filter(|word| word.starts_with("kedis_") || word.starts_with("process_"))
            .collect();
        assert!(named.len() > 15, "{file}: {named:?}");
        let is_known = |name: &&str| {
            let of_histogram = ["_bucket", "_sum", "_count"]
                .iter()
                .filter_map(|suffix| name.strip_suffix(suffix))
                .any(|family| listed.get(family).is_some_and(|l| l.kind == "histogram"));
            listed.contains_key(*name) || of_histogram
        };
        let unknown: Vec<_> = named.into_iter().filter(|name| !is_known(name)).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/manual/metrics.md");
    let manual = fs::read_to_string(manual).unwrap();
    let rules = fs::read_to_string(folder.join("kedis-alerts.yml")).unwrap();
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: BTreeSet<&str> = alerts.collect();
    let rows = manual
        .lines()
        .filter_map(|line| line.strip_prefix("| `Kedis")?.split_once('`'));
    let described: BTreeSet<String> = rows.map(|(name, _)| format!("Kedis{name}")).collect();
    assert_eq!(alerts, described.iter().map(String::as_str).collect());
}

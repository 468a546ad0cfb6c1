//! Clients that do what they should not: all others are served.

use super::Observed;
use super::client::Http;
use super::page::Page;
use std::collections::VecDeque;

#[test]
fn what_cannot_be_served_is_refused() {
    let observed = Observed::start(&[]);
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(10_000));
    let many = format!(
        "GET /metrics HTTP/1.1\r\nHost: x\r\n{}\r\n",
        "A: b\r\n".repeat(100)
    );
    let cases: &[(&str, u16, bool)] = &[
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 404, true),
        ("GET /metrics/../etc HTTP/1.1\r\nHost: x\r\n\r\n", 404, true),
        (
            "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
            405,
            false,
        ),
        ("DELETE /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 405, false),
        ("GET /metrics HTTP/1.1\r\n\r\n", 400, false),
        (
            "GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nGET ",
            400,
            false,
        ),
        (
            "GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            false,
        ),
        ("PING\r\n", 400, false),
        ("*1\r\n$4\r\nPING\r\n", 400, false),
        ("\u{16}\u{3}\u{1}\u{2}", 400, false),
        (&long, 431, false),
        (&many, 431, false),
        ("GET /healthz HTTP/1.0\r\n\r\n", 200, false),
        (
            "GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            200,
            true,
        ),
        (
            "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            200,
            false,
        ),
    ];
    for (request, status, stays) in cases {
        let mut http = observed.http();
        // The server may close the connection before it has everything.
        let _ = http.send(request.as_bytes());
        let response = http
            .read(true)
            .unwrap_or_else(|error| panic!("{request:?}: {error}"));
        assert_eq!(response.status, *status, "{request:?}");
        let says = if *stays { "keep-alive" } else { "close" };
        assert_eq!(response.header("connection"), Some(says), "{request:?}");
        if *status == 405 {
            assert_eq!(response.header("allow"), Some("get, head"));
        }
        match stays {
            true => assert_eq!(http.get("/healthz", "").unwrap().status, 200),
            false => assert!(http.is_closed(), "{request:?}"),
        }
    }
}

#[test]
fn a_connection_serves_many_requests() {
    let observed = Observed::start(&[]);
    let mut http = observed.http();
    for _ in 0..3 {
        assert_eq!(http.get("/healthz", "").unwrap().body, "ok\n");
        Page::read(&http.get("/metrics", "").unwrap().body, false);
    }
    http.send(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let head = http.read(false).unwrap();
    assert!(
        head.header("content-length")
            .unwrap()
            .parse::<usize>()
            .unwrap()
            > 10_000
    );
    // In one write, and byte by byte.
    let request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
    http.send(&request.repeat(50)).unwrap();
    for _ in 0..50 {
        assert_eq!(http.read(true).unwrap().status, 200);
    }
    for byte in request {
        http.send(&[*byte]).unwrap();
    }
    assert_eq!(http.read(true).unwrap().status, 200);
}

/// Each of these could have kept the thread, or all of its connections.
#[test]
fn slow_clients_hold_up_nobody() {
    let observed = Observed::start(&[]);
    let port = *observed.port;
    let mut held: VecDeque<Http> = VecDeque::new();
    let starts: [&[u8]; 4] = [
        b"",
        b"G",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nA: ",
        // Reads none of its responses, which are more than a socket buffers.
        &b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(100),
    ];
    for n in 0..200 {
        // Out of descriptors, or the queue is full: as well.
        if let Ok(mut http) = Http::open(port) {
            let _ = http.send(starts[n % starts.len()]);
            held.push_back(http);
        }
        if n % 20 == 0 {
            let page = observed.page();
            // The bound of connections holds.
            let open = page.value("process_open_fds").unwrap_or(0.0);
            assert!(open < 400.0, "{open}");
            assert_eq!(observed.http().get("/healthz", "").unwrap().status, 200);
        }
    }
    // The first of them were closed in favour of later ones.
    assert!(held.pop_front().unwrap().is_closed());
    assert_eq!(observed.server.connect().must("PING").text(), "PONG");
}

#[test]
fn nothing_listens_unless_it_is_wanted() {
    let server = crate::support::Server::start(&[]);
    assert!(!server.log().contains("metrics are served"));
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
    let names: Vec<String> = names.map(|name| name.unwrap_or_default()).collect();
    assert!(!names.contains(&"metrics\n".to_owned()), "{names:?}");
}

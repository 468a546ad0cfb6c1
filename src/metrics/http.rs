//! Requests and responses of HTTP/1.1. Only GET and HEAD without a body are served, so that nothing
//! of a body is ever taken for a request.

use super::samples::Format;
use std::io::Write;

/// The longest head of a request, in bytes.
pub(super) const HEAD_MAX: usize = 8 << 10;
/// The most header lines.
const HEADERS_MAX: usize = 64;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Metrics(Format),
    Alive,
    Ready,
    /// Nothing that there is.
    Nothing,
}

/// A request, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parsed {
    /// More bytes are needed.
    Partial,
    /// A request.
    Request(Request),
    /// No request that can be answered otherwise than with this status.
    Refused(Status),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) asked: Asked,
    /// Whether only the head of the response is wanted.
    pub(super) head: bool,
    /// Whether the connection stays open.
    pub(super) stays: bool,
    /// The length of the request in bytes.
    pub(super) len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    TooLarge,
    Unavailable,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::TooLarge => "431 Request Header Fields Too Large",
            Status::Unavailable => "503 Service Unavailable",
        }
    }
}

/// Reads a request from what was received.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let len = match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => return Parsed::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Parsed::Refused(Status::TooLarge);
        }
        Err(_) => return Parsed::Refused(Status::BadRequest),
    };
    let all = |name: &'static str| {
        let named = request.headers.iter();
        let named = named.filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| String::from_utf8_lossy(header.value))
    };
    let is_new = request.version == Some(1);
    if is_new && all("host").count() != 1 {
        return Parsed::Refused(Status::BadRequest);
    }
    let has_body = all("transfer-encoding").next().is_some()
        || all("content-length").any(|length| length.trim() != "0");
    let head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Parsed::Refused(Status::MethodNotAllowed),
    };
    if has_body {
        return Parsed::Refused(Status::BadRequest);
    }
    let target = request.path.unwrap_or_default();
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let asked = match path {
        "/metrics" => {
            let accept: Vec<_> = all("accept").collect();
            Asked::Metrics(accepted(&accept.join(",")))
        }
        "/healthz" => Asked::Alive,
        "/readyz" => Asked::Ready,
        _ => Asked::Nothing,
    };
    let connection: Vec<_> = all("connection").collect();
    let connection = connection.join(",").to_ascii_lowercase();
    let says = |word| connection.split(',').any(|said| said.trim() == word);
    let stays = !says("close") && (is_new || says("keep-alive"));
    Parsed::Request(Request {
        asked,
        head,
        stays,
        len,
    })
}

/// The format that an Accept header prefers: OpenMetrics only if it is named.
fn accepted(accept: &str) -> Format {
    let (mut open, mut text) = (0.0, 0.0_f64);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut weight, mut known) = (1.0, true);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name.trim() {
                "q" => weight = value.trim().parse().unwrap_or(0.0),
                "version" => known = ["1.0.0", "0.0.1"].contains(&value.trim().trim_matches('"')),
                _ => {}
            }
        }
        match kind.as_str() {
            "application/openmetrics-text" if known && weight > open => open = weight,
            "text/plain" | "text/*" | "*/*" => text = text.max(weight),
            _ => {}
        }
    }
    match open > 0.0 && open >= text {
        true => Format::OpenMetrics,
        false => Format::Text,
    }
}

/// A response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Response<'a> {
    pub(super) status: Status,
    pub(super) content_type: &'a str,
    pub(super) body: &'a str,
}

impl<'a> Response<'a> {
    /// A response in words.
    pub(super) fn words(status: Status, body: &'a str) -> Response<'a> {
        Response {
            status,
            content_type: "text/plain; charset=utf-8",
            body,
        }
    }

    /// Appends the response, or only its head.
    pub(super) fn write(&self, head: bool, stays: bool, out: &mut Vec<u8>) {
        let allow = match self.status {
            Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let connection = if stays { "keep-alive" } else { "close" };
        // Writing to a vector cannot fail.
        let _ = write!(
            out,
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}\
             Cache-Control: no-store\r\nConnection: {connection}\r\n\r\n",
            self.status.line(),
            self.content_type,
            self.body.len(),
        );
        if !head {
            out.extend_from_slice(self.body.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Parsed::Request(request) => request,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn what_is_asked_for() {
        let of = |line: &str| request(&format!("{line}\r\nHost: x\r\n\r\nGET")).asked;
        assert_eq!(of("GET /metrics HTTP/1.1"), Asked::Metrics(Format::Text));
        assert_eq!(
            of("GET /metrics?x=/healthz HTTP/1.1"),
            Asked::Metrics(Format::Text)
        );
        assert_eq!(of("HEAD /healthz HTTP/1.1"), Asked::Alive);
        assert_eq!(of("GET /readyz HTTP/1.0"), Asked::Ready);
        for line in [
            "GET / HTTP/1.1",
            "GET /metrics/ HTTP/1.1",
            "GET http://x/metrics HTTP/1.1",
        ] {
            assert_eq!(of(line), Asked::Nothing, "{line}");
        }
        assert!(request("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").head);
        assert_eq!(request("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /").len, 27);
    }

    #[test]
    fn whether_the_connection_stays() {
        for (text, stays) in [
            ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", true),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n",
                false,
            ),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade, close\r\n\r\n",
                false,
            ),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
        ] {
            assert_eq!(request(text).stays, stays, "{text:?}");
        }
    }

    #[test]
    fn what_is_refused() {
        let long = format!("GET / HTTP/1.1\r\nHost: {}", "x".repeat(HEAD_MAX));
        let many = format!(
            "GET / HTTP/1.1\r\n{}\r\n",
            "A: b\r\n".repeat(HEADERS_MAX + 1)
        );
        for (text, status) in [
            (
                "POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                Status::MethodNotAllowed,
            ),
            ("GET / HTTP/1.1\r\n\r\n", Status::BadRequest),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
                Status::BadRequest,
            ),
            ("GET / HTTP/2.0\r\nHost: x\r\n\r\n", Status::BadRequest),
            ("*1\r\n$4\r\nPING\r\n", Status::BadRequest),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
                Status::BadRequest,
            ),
            (
                "GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
                Status::BadRequest,
            ),
            (&long, Status::TooLarge),
            (&many, Status::TooLarge),
        ] {
            assert_eq!(parse(text.as_bytes()), Parsed::Refused(status), "{text:?}");
        }
        assert_eq!(parse(b"GET / HTTP/1.1\r\nHo"), Parsed::Partial);
        assert_eq!(parse(b""), Parsed::Partial);
    }

    #[test]
    fn the_format_is_the_preferred_one() {
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/plain", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text; version=2.0.0", Format::Text),
            ("application/openmetrics-text;q=0", Format::Text),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            (
                "text/plain;q=0.9, application/openmetrics-text;q=0.5",
                Format::Text,
            ),
        ] {
            assert_eq!(accepted(accept), format, "{accept}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Parsed::Request(request) = parse(&bytes) {
                prop_assert!(request.len <= bytes.len());
            }
        }
    }
}
